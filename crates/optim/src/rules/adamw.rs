//! AdamW: Adam with decoupled weight decay (`torch.optim.AdamW`; Loshchilov and Hutter, "Decoupled Weight Decay
//! Regularization", ICLR 2019).
//!
//! ```text
//! p ← p · (1 − ηλ)             first, on the old weight
//! then Adam's step on the gradient alone
//! ```

use super::AdamWith;

/// AdamW, whose weight decay is apart from the moments: [`AdamWith`] the decoupled form.
pub type AdamW = AdamWith<true>;
