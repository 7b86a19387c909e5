//! Sums of products named by letters: `"bij,bjk->bik"`.
//!
//! Operands are taken together from the left, two at a time, each time by one batched matmul: letters that both have and
//! that are still needed are batch axes, letters that nothing needs any more are summed, the others are rows and columns.

use super::Tensor;
use crate::{Dim, GraphBuilder, Mistake, Shape};

/// A tensor with a letter for each axis, no letter twice.
#[derive(Clone)]
struct Named<'g> {
    tensor: Tensor<'g>,
    letters: Vec<char>,
}

impl GraphBuilder {
    /// The sum of products that `equation` names: a letter for each axis of each operand, separated by commas, and after
    /// `->` the letters of the result, in order; letters that are not there are summed. Without an arrow, the result has
    /// the letters that occur once, in the alphabet's order. A letter that stands twice in one operand is its diagonal; an
    /// axis of size 1 stretches to its letter's size.
    #[track_caller]
    pub fn einsum<'g>(&'g self, equation: &str, operands: &[Tensor<'g>]) -> Tensor<'g> {
        if let Some(poisoned) = operands.iter().find(|t| t.value.is_none()) {
            return *poisoned;
        }
        let (from, to, sizes) = match letters(equation, operands) {
            Ok(found) => found,
            Err(mistake) => return self.mistake("einsum", operands, mistake),
        };
        let mut rest: Vec<Named<'g>> = vec![];
        for (tensor, letters) in operands.iter().zip(from) {
            let size = |c: &char| sizes.iter().find(|(known, _)| known == c).map(|(_, n)| n.clone());
            let full = Shape(letters.iter().filter_map(size).collect());
            rest.push(Named { tensor: tensor.broadcast(&full), letters }.diagonals());
        }
        rest.reverse();
        let Some(mut total) = rest.pop() else {
            return self.mistake("einsum", &[], Mistake::new("takes at least one tensor", "give it one"));
        };
        while let Some(next) = rest.pop() {
            let needed =
                |c: &char| to.contains(c) || rest.iter().any(|named: &Named<'g>| named.letters.contains(c));
            total = total.times(next, &needed);
        }
        total.only(&|c| to.contains(c)).arranged(&to).tensor
    }
}

/// The letters of each operand and of the result, and each letter's size.
type Letters = (Vec<Vec<char>>, Vec<char>, Vec<(char, Dim)>);

/// Reads an equation and checks it against the operands' shapes.
fn letters(equation: &str, operands: &[Tensor<'_>]) -> Result<Letters, Mistake> {
    let help = "write a letter for each axis, as in \"ij,jk->ik\"";
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation, None),
    };
    let read = |s: &str| -> Result<Vec<char>, Mistake> {
        let named: Vec<char> = s.chars().filter(|c| !c.is_whitespace()).collect();
        match named.iter().find(|c| !c.is_alphabetic()) {
            Some(c) => Err(Mistake::new(format!("'{c}' in \"{equation}\" is no letter"), help)),
            None => Ok(named),
        }
    };
    let from = left.split(',').map(read).collect::<Result<Vec<_>, _>>()?;
    if from.len() != operands.len() {
        let what = format!("\"{equation}\" names {} operand(s), got {}", from.len(), operands.len());
        return Err(Mistake::new(what, help));
    }
    let mut sizes: Vec<(char, Dim)> = vec![];
    for (named, t) in from.iter().zip(operands) {
        let shape = t.shape();
        if named.len() != shape.rank() {
            let what = format!("{} letter(s) of \"{equation}\" for {shape}", named.len());
            return Err(Mistake::new(what, help));
        }
        for (&c, dim) in named.iter().zip(&shape.0) {
            match sizes.iter_mut().find(|(known, _)| *known == c) {
                Some((_, known)) if known.is_one() => *known = dim.clone(),
                Some((_, known)) if known != dim && !dim.is_one() => {
                    let what = format!("'{c}' of \"{equation}\" is {known} and {dim}");
                    return Err(Mistake::new(what, "give axes of one letter one size"));
                }
                Some(_) => {}
                None => sizes.push((c, dim.clone())),
            }
        }
    }
    let to = match right {
        Some(right) => read(right)?,
        None => {
            let once = |c: &char| from.concat().iter().filter(|d| *d == c).count() == 1;
            let mut to: Vec<char> = sizes.iter().map(|(c, _)| *c).filter(once).collect();
            to.sort_unstable();
            to
        }
    };
    for (i, c) in to.iter().enumerate() {
        if to[..i].contains(c) || !sizes.iter().any(|(known, _)| known == c) {
            let what = format!("'{c}' in the result of \"{equation}\" is not exactly one axis");
            return Err(Mistake::new(what, "name each letter of the result once, and in an operand"));
        }
    }
    Ok((from, to, sizes))
}

impl<'g> Named<'g> {
    /// Letters that stand twice become one axis, the diagonal of both.
    #[track_caller]
    fn diagonals(self) -> Named<'g> {
        let Named { mut tensor, mut letters } = self;
        while let Some((a, b)) = twice(&letters) {
            let rest = (0..letters.len()).filter(|&i| i != a && i != b);
            tensor = tensor.transpose(&rest.chain([a, b]).collect::<Vec<_>>()).diagonal(0);
            let c = letters.remove(b);
            letters.remove(a);
            letters.push(c);
        }
        Named { tensor, letters }
    }

    /// Sums the axes whose letters are not `needed`.
    #[track_caller]
    fn only(self, needed: &dyn Fn(&char) -> bool) -> Named<'g> {
        let gone: Vec<isize> =
            (0..self.letters.len()).filter(|&i| !needed(&self.letters[i])).map(|i| i as isize).collect();
        if gone.is_empty() {
            return self;
        }
        let tensor = self.tensor.sum(&gone);
        Named { tensor, letters: self.letters.into_iter().filter(|c| needed(c)).collect() }
    }

    /// The axes in the order of `to`, which has all of them.
    #[track_caller]
    fn arranged(self, to: &[char]) -> Named<'g> {
        let at = |c: &char| self.letters.iter().position(|l| l == c);
        let perm: Vec<usize> = to.iter().filter_map(at).collect();
        Named { tensor: self.tensor.transpose(&perm), letters: to.to_vec() }
    }

    /// The axes in the order of `groups`, each group as one axis.
    #[track_caller]
    fn grouped(self, groups: &[&[char]]) -> Tensor<'g> {
        let named = self.arranged(&groups.concat());
        let dims = named.tensor.shape().0;
        let (mut merged, mut start) = (vec![], 0);
        for group in groups {
            let all = dims[start..start + group.len()].iter();
            let product = all.cloned().try_fold(Dim::fixed(1), |a, b| a.times(&b));
            let Some(product) = product else {
                return named.tensor.mistake(
                    "einsum",
                    "the number of elements overflows",
                    "use smaller axes",
                );
            };
            merged.push(product);
            start += group.len();
        }
        named.tensor.reshape(Shape(merged))
    }

    /// The product with another, with only the letters that are `needed`.
    #[track_caller]
    fn times(self, other: Named<'g>, needed: &dyn Fn(&char) -> bool) -> Named<'g> {
        // What one alone has and nobody needs is summed before the product.
        let (mine, theirs) = (self.letters.clone(), other.letters.clone());
        let a = self.only(&|c| needed(c) || theirs.contains(c));
        let b = other.only(&|c| needed(c) || mine.contains(c));
        let of = |l: &[char], f: &dyn Fn(&char) -> bool| -> Vec<char> {
            l.iter().filter(|c| f(c)).copied().collect()
        };
        let batch = of(&a.letters, &|c| b.letters.contains(c) && needed(c));
        let summed = of(&a.letters, &|c| b.letters.contains(c) && !needed(c));
        let rows = of(&a.letters, &|c| !b.letters.contains(c));
        let columns = of(&b.letters, &|c| !a.letters.contains(c));
        let dims_of = |named: &Named<'g>, l: &[char]| -> Vec<Dim> {
            let dims = named.tensor.shape().0;
            let at = |c: &char| named.letters.iter().position(|d| d == c);
            l.iter().filter_map(at).map(|i| dims[i].clone()).collect()
        };
        let dims = [dims_of(&a, &batch), dims_of(&a, &rows), dims_of(&b, &columns)].concat();
        let left = a.grouped(&[&batch, &rows, &summed]);
        let right = b.grouped(&[&batch, &summed, &columns]);
        // Of nothing that is summed, the outer product: one axis of 1 stretches over the other side's.
        let product = if summed.is_empty() { left * right } else { left.matmul(right) };
        let tensor = product.reshape(Shape(dims));
        Named { tensor, letters: [batch, rows, columns].concat() }
    }
}

/// The places of the first letter that stands twice.
fn twice(letters: &[char]) -> Option<(usize, usize)> {
    (0..letters.len())
        .find_map(|a| (a + 1..letters.len()).find(|&b| letters[a] == letters[b]).map(|b| (a, b)))
}
