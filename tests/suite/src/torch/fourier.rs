//! Complex numbers, recorded as pairs in a last axis of 2, and Fourier transforms. The inputs are all real.

use super::Entry;
use super::call::{Built, Call, KEYWORD, Trouble, wrapped};
use super::helpers::{along, one, paired, sizes};
use onestep_ir::{Complex, DType, FourierNorm, Tensor};

pub const TABLE: &[Entry] = &[
    ("complex", |c| {
        let (re, im) = paired(c.x()?, c.tensor(1, "imag")?);
        let (re, im) = re.stretched(im);
        one(Complex { re, im }.pairs())
    }),
    ("polar", |c| {
        let (size, angle) = paired(c.x()?, c.tensor(1, "angle")?);
        let (size, angle) = size.stretched(angle);
        one(Complex::polar(size, angle).pairs())
    }),
    ("cfloat", |c| one(c.x()?.cast(DType::F32).complex().pairs())),
    ("cdouble", |c| one(c.x()?.cast(DType::F64).complex().pairs())),
    ("view_as_complex", |c| one(Complex::from_pairs(c.x()?).pairs())),
    ("fft.fft", |c| one(there(c, &line(c)?)?.pairs())),
    ("fft.fft2", |c| one(there(c, &plane(c)?)?.pairs())),
    ("fft.fftn", |c| one(there(c, &space(c)?)?.pairs())),
    ("fft.ifft", |c| one(back(c, c.x()?.complex(), &line(c)?)?.pairs())),
    ("fft.ifft2", |c| one(back(c, c.x()?.complex(), &plane(c)?)?.pairs())),
    ("fft.ifftn", |c| one(back(c, c.x()?.complex(), &space(c)?)?.pairs())),
    ("fft.rfft", |c| half(c, &line(c)?)),
    ("fft.rfft2", |c| half(c, &plane(c)?)),
    ("fft.rfftn", |c| half(c, &space(c)?)),
    ("fft.irfft", |c| whole(c, &line(c)?)),
    ("fft.irfft2", |c| whole(c, &plane(c)?)),
    ("fft.irfftn", |c| whole(c, &space(c)?)),
    ("fft.hfft", |c| hermitian(c, &line(c)?)),
    ("fft.hfft2", |c| hermitian(c, &plane(c)?)),
    ("fft.hfftn", |c| hermitian(c, &space(c)?)),
    ("fft.ihfft", |c| inverse_hermitian(c, &line(c)?)),
    ("fft.ihfft2", |c| inverse_hermitian(c, &plane(c)?)),
    ("fft.ihfftn", |c| inverse_hermitian(c, &space(c)?)),
    ("fft.fftshift", |c| shifted(c, |n| n / 2)),
    ("fft.ifftshift", |c| shifted(c, |n| n.div_ceil(2))),
    ("stft", |c| {
        let (x, n) = (c.x()?, c.int(1, "n_fft")? as usize);
        let hop = c.int_or(2, "hop_length", n as isize / 4)? as usize;
        let x = if c.flag(KEYWORD, "center", true)? { x.pad_reflect(-1, n / 2, n / 2) } else { x };
        let frames = x.windows(-1, n, hop);
        let frames = c.maybe(KEYWORD, "window")?.map_or(frames, |w| frames * w);
        let found = frames.rfft(-1, None, FourierNorm::Backward);
        one(Complex { re: found.re.transpose_last(), im: found.im.transpose_last() }.pairs())
    }),
];

/// Axes, each with the length that is asked for.
type Axes = Vec<(isize, Option<usize>)>;

/// The one axis of a transform.
fn line(c: &Call<'_, '_>) -> Result<Axes, Trouble> {
    Ok(vec![(c.int_or(2, "dim", -1)?, c.maybe_int(1, "n")?.map(|n| n as usize))])
}

/// Two axes, or those that the call names.
fn plane(c: &Call<'_, '_>) -> Result<Axes, Trouble> {
    axes(c, c.maybe_ints(2, "dim")?.unwrap_or_else(|| vec![-2, -1]))
}

/// The axes that the call names: without any, the last ones for as many lengths as it gives, or all.
fn space(c: &Call<'_, '_>) -> Result<Axes, Trouble> {
    let count = match c.maybe_ints(1, "s")? {
        Some(s) => s.len(),
        None => c.x()?.rank(),
    };
    axes(c, c.maybe_ints(2, "dim")?.unwrap_or_else(|| (-(count as isize)..0).collect()))
}

fn axes(c: &Call<'_, '_>, dims: Vec<isize>) -> Result<Axes, Trouble> {
    let lengths = c.maybe_ints(1, "s")?;
    let length = |i: usize| lengths.as_ref().and_then(|s| usize::try_from(s[i]).ok());
    Ok(dims.into_iter().enumerate().map(|(i, d)| (d, length(i))).collect())
}

fn norm(c: &Call<'_, '_>) -> Result<FourierNorm, Trouble> {
    Ok(match c.text(3, "norm", "backward")? {
        "ortho" => FourierNorm::Ortho,
        "forward" => FourierNorm::Forward,
        _ => FourierNorm::Backward,
    })
}

/// The scale of a transform that goes the other way than its name says.
fn swapped(norm: FourierNorm) -> FourierNorm {
    match norm {
        FourierNorm::Backward => FourierNorm::Forward,
        FourierNorm::Forward => FourierNorm::Backward,
        FourierNorm::Ortho => FourierNorm::Ortho,
    }
}

fn there<'g>(c: &Call<'_, 'g>, axes: &[(isize, Option<usize>)]) -> Result<Complex<'g>, Trouble> {
    let norm = norm(c)?;
    Ok(axes.iter().fold(c.x()?.complex(), |z, &(axis, n)| z.fft(axis, n, norm)))
}

fn back<'g>(
    c: &Call<'_, 'g>,
    z: Complex<'g>,
    axes: &[(isize, Option<usize>)],
) -> Result<Complex<'g>, Trouble> {
    let norm = norm(c)?;
    Ok(axes.iter().fold(z, |z, &(axis, n)| z.ifft(axis, n, norm)))
}

/// The last axis and the others.
fn last(axes: &Axes) -> Result<((isize, Option<usize>), &[(isize, Option<usize>)]), Trouble> {
    let none = || Trouble::Malformed("a transform of no axis".into());
    axes.split_last().map(|(last, rest)| (*last, rest)).ok_or_else(none)
}

/// A transform of real numbers: the first half of the last axis.
fn half<'g>(c: &Call<'_, 'g>, axes: &Axes) -> Built<'g> {
    let (((axis, n), rest), norm) = (last(axes)?, norm(c)?);
    let z = c.x()?.rfft(axis, n, norm);
    one(rest.iter().fold(z, |z, &(axis, n)| z.fft(axis, n, norm)).pairs())
}

/// The inverse of [`half`].
fn whole<'g>(c: &Call<'_, 'g>, axes: &Axes) -> Built<'g> {
    let ((axis, n), rest) = last(axes)?;
    one(back(c, c.x()?.complex(), rest)?.irfft(axis, n, norm(c)?))
}

/// The transform of what is its own mirror image's conjugate.
fn hermitian<'g>(c: &Call<'_, 'g>, axes: &Axes) -> Built<'g> {
    let ((axis, n), rest) = last(axes)?;
    one(there(c, rest)?.conj().irfft(axis, n, swapped(norm(c)?)))
}

fn inverse_hermitian<'g>(c: &Call<'_, 'g>, axes: &Axes) -> Built<'g> {
    let ((axis, n), rest) = last(axes)?;
    one(back(c, c.x()?.rfft(axis, n, swapped(norm(c)?)).conj(), rest)?.pairs())
}

/// The named axes (or all) rolled by a number that follows from their size.
fn shifted<'g>(c: &Call<'_, 'g>, by: impl Fn(usize) -> usize) -> Built<'g> {
    let x = c.x()?;
    let dims = match c.maybe_ints(1, "dim")? {
        Some(dims) => dims.into_iter().map(|d| wrapped(d, x.rank())).collect::<Result<Vec<_>, _>>()?,
        None => (0..x.rank()).collect(),
    };
    let roll = |x: Tensor<'g>, a: usize| along(x, a, |x, a| x.roll(a, by(sizes(x)[a as usize]) as isize));
    one(dims.into_iter().fold(x, roll))
}
