//! Philox bits over a block of element indices.
//!
//! Four neighbours share one Philox call. Where indices run on from a multiple of four, as they do when the index is
//! that of the domain, eight calls at a time are computed side by side, which vectorises; elsewhere one call an element.

use super::Isa;
use onestep_ir::random::draw;

/// `d[i]` = element `index[i]` of `stream`, with the same key words and step for all.
pub type Random = unsafe fn(*mut u32, *const i64, [u32; 2], u32, u64, usize);

/// Elements computed side by side.
const GROUP: usize = 32;

#[inline(always)]
fn body(d: &mut [u32], index: &[i64], key: [u32; 2], step: u32, stream: u64) {
    let mut i = 0;
    while i < d.len() {
        if i + GROUP <= d.len() && index[i] & 3 == 0 && runs_on(&index[i..i + GROUP]) {
            group(&mut d[i..i + GROUP], (index[i] as u64 / 4) as u32, key, step, stream);
            i += GROUP;
        } else {
            d[i] = draw(key, stream, step, index[i] as u64);
            i += 1;
        }
    }
}

#[inline(always)]
fn runs_on(index: &[i64]) -> bool {
    index.iter().enumerate().fold(true, |all, (k, &i)| all & (i == index[0].wrapping_add(k as i64)))
}

/// The words of the blocks `first..first + 8`, as `onestep_ir::random::philox` computes each.
#[inline(always)]
fn group(d: &mut [u32], first: u32, key: [u32; 2], step: u32, stream: u64) {
    const N: usize = GROUP / 4;
    let mut c0: [u32; N] = std::array::from_fn(|k| first.wrapping_add(k as u32));
    let (mut c1, mut c2, mut c3) = ([step; N], [stream as u32; N], [(stream >> 32) as u32; N]);
    let [mut k0, mut k1] = key;
    for round in 0..10 {
        if round > 0 {
            k0 = k0.wrapping_add(0x9E37_79B9);
            k1 = k1.wrapping_add(0xBB67_AE85);
        }
        for k in 0..N {
            let p0 = 0xD251_1F53u64 * c0[k] as u64;
            let p1 = 0xCD9E_8D57u64 * c2[k] as u64;
            c0[k] = (p1 >> 32) as u32 ^ c1[k] ^ k0;
            c1[k] = p1 as u32;
            c2[k] = (p0 >> 32) as u32 ^ c3[k] ^ k1;
            c3[k] = p0 as u32;
        }
    }
    for k in 0..N {
        d[4 * k] = c0[k];
        d[4 * k + 1] = c1[k];
        d[4 * k + 2] = c2[k];
        d[4 * k + 3] = c3[k];
    }
}

unsafe fn portable(d: *mut u32, index: *const i64, key: [u32; 2], step: u32, stream: u64, n: usize) {
    // SAFETY: the caller gives `n` elements of each, disjoint.
    let (d, index) = unsafe { (std::slice::from_raw_parts_mut(d, n), std::slice::from_raw_parts(index, n)) };
    body(d, index, key, step, stream);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn wide(d: *mut u32, index: *const i64, key: [u32; 2], step: u32, stream: u64, n: usize) {
    // SAFETY: the caller gives `n` elements of each, disjoint.
    let (d, index) = unsafe { (std::slice::from_raw_parts_mut(d, n), std::slice::from_raw_parts(index, n)) };
    body(d, index, key, step, stream);
}

/// The copy for an instruction set.
pub fn random(isa: Isa) -> Random {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => wide,
        _ => portable,
    }
}
