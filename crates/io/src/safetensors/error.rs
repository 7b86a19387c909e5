//! What can be wrong with a `safetensors` file.

use onestep_ir::ArrayError;

/// Why bytes are not a `safetensors` file that can be read, or tensors cannot become one.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// There is no room for the header's length.
    #[error(
        "the file has {bytes} bytes, but it must begin with 8 that give its header's length; is it cut off?"
    )]
    TooShort {
        /// Bytes of the file.
        bytes: u64,
    },

    /// The header is longer than the format allows.
    #[error(
        "a header of {bytes} bytes exceeds the format's {} bytes; is this a safetensors file?",
        super::header::LARGEST
    )]
    HeaderTooLarge {
        /// Bytes of the header.
        bytes: u64,
    },

    /// The header is longer than the file.
    #[error("the header should have {claimed} bytes, but only {left} follow; is the file cut off?")]
    HeaderLength {
        /// What the file claims.
        claimed: u64,
        /// What there is.
        left: u64,
    },

    /// The header is not text.
    #[error("the header is not UTF-8: {0}")]
    NotUtf8(#[from] std::str::Utf8Error),

    /// The header is not JSON, or not the JSON that the format asks for. The message names the tensor, if it is one's.
    #[error("the header is not as the format asks: {0}")]
    Header(#[from] serde_json::Error),

    /// Two tensors have one name.
    #[error("there are two tensors `{name}`; give each its own name")]
    Repeated {
        /// Their name.
        name: String,
    },

    /// A tensor has the name under which the format keeps its metadata.
    #[error("a tensor cannot be called `{name}`: the format keeps its metadata there; choose another name")]
    Reserved {
        /// The name.
        name: String,
    },

    /// A dtype that Onestep does not have.
    #[error(
        "tensor `{name}` is {dtype:?}, which is not supported; convert it to one of {}",
        super::header::supported()
    )]
    DType {
        /// The tensor.
        name: String,
        /// What the file says.
        dtype: String,
    },

    /// A tensor's bytes are more or fewer than its dtype and shape ask for.
    #[error("tensor `{name}`, {dtype} of shape {shape:?}, does not fit the {bytes} bytes kept for it")]
    Size {
        /// The tensor.
        name: String,
        /// Its dtype, as the format spells it.
        dtype: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// The bytes kept for it.
        bytes: usize,
    },

    /// A tensor's place ends before it begins, overlaps another, or leaves a gap behind another.
    #[error(
        "the place of tensor `{name}`, bytes {begin} to {end}, does not follow that of the tensor before it"
    )]
    Offsets {
        /// The tensor.
        name: String,
        /// Where it begins.
        begin: usize,
        /// Where it ends.
        end: usize,
    },

    /// The tensors' bytes are more or fewer than those that follow the header.
    #[error("the header describes {described} bytes of tensors, but {found} follow it; is the file cut off?")]
    DataLength {
        /// What the header describes.
        described: u64,
        /// What there is.
        found: u64,
    },

    /// A tensor cannot be held in memory.
    #[error("tensor `{name}`: {source}")]
    Array {
        /// The tensor.
        name: String,
        /// The reason.
        source: ArrayError,
    },

    /// The bytes could not be read or written.
    #[error("{0}")]
    Read(std::io::Error),
}
