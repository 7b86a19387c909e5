//! Moving elements by their size in bytes, whatever they mean: with a stride, repeated, or as they are.

/// Calls `$f::<T>` for the unsigned type of `$size` bytes.
macro_rules! by_size {
    ($size:expr, $f:ident($($arg:expr),*)) => {
        match $size {
            1 => $f::<u8>($($arg),*),
            2 => $f::<u16>($($arg),*),
            4 => $f::<u32>($($arg),*),
            _ => $f::<u64>($($arg),*),
        }
    };
}

/// `to[i] = from[i · stride]` for `n` elements of `size` bytes.
///
/// # Safety
///
/// All those elements exist, aligned, and the two do not overlap.
pub unsafe fn gather(size: usize, to: *mut u8, from: *const u8, stride: i64, n: usize) {
    unsafe fn sized<T: Copy>(to: *mut u8, from: *const u8, stride: i64, n: usize) {
        let from: *const T = from.cast();
        // SAFETY: the caller gives `n` elements to write.
        let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<T>(), n) };
        for (i, d) in to.iter_mut().enumerate() {
            // SAFETY: and an element to read at each multiple of the stride.
            *d = unsafe { *from.offset(i as isize * stride as isize) };
        }
    }
    if n == 0 {
        return;
    }
    // SAFETY: the caller's promise; for stride 1 the elements are adjacent, for 0 there is one.
    unsafe {
        match stride {
            1 => std::ptr::copy_nonoverlapping(from, to, n * size),
            0 => repeat(size, to, from, n),
            _ => by_size!(size, sized(to, from, stride, n)),
        }
    }
}

/// `to[i · stride] = from[i]` for `n` elements of `size` bytes.
///
/// # Safety
///
/// All those elements exist, aligned. The two may be the same memory when the stride is 1, else they do not overlap.
pub unsafe fn scatter(size: usize, to: *mut u8, stride: i64, from: *const u8, n: usize) {
    unsafe fn sized<T: Copy>(to: *mut u8, stride: i64, from: *const u8, n: usize) {
        let to: *mut T = to.cast();
        // SAFETY: the caller gives `n` elements to read.
        let from = unsafe { std::slice::from_raw_parts(from.cast::<T>(), n) };
        for (i, s) in from.iter().enumerate() {
            // SAFETY: and an element to write at each multiple of the stride.
            unsafe { *to.offset(i as isize * stride as isize) = *s };
        }
    }
    // SAFETY: the caller's promise; for stride 1 the elements are adjacent.
    unsafe {
        match stride {
            1 => std::ptr::copy(from, to, n * size),
            _ => by_size!(size, sized(to, stride, from, n)),
        }
    }
}

/// `to[i] = from[0]` for `n` elements of `size` bytes.
///
/// # Safety
///
/// Those elements exist, aligned, and the two do not overlap.
pub unsafe fn repeat(size: usize, to: *mut u8, from: *const u8, n: usize) {
    unsafe fn sized<T: Copy>(to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller gives one element to read and `n` to write.
        let (to, x) = unsafe { (std::slice::from_raw_parts_mut(to.cast::<T>(), n), *from.cast::<T>()) };
        to.fill(x);
    }
    // SAFETY: the caller's promise.
    unsafe { by_size!(size, sized(to, from, n)) }
}
