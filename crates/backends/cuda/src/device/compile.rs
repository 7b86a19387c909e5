//! Texts to machine code of the device, by NVRTC, with a cache on disk.
//!
//! A file of the cache begins with its whole key (compiler, options, architecture, text), so a hit is what would be compiled,
//! whatever the name. It is written beside its place and renamed. A cache that cannot be read or written is none.

use crate::CudaError;
use crate::render::COMPILE_OPTIONS;
use cudarc::nvrtc::{result, sys};
use onestep_ir::random::stream_id;
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Compiles each text for an architecture, on as many threads as there are texts.
pub(super) fn compile(texts: &[(usize, String)], architecture: &str) -> Result<Vec<Vec<u8>>, CudaError> {
    let folder = folder();
    let one = |text: &str| cached(text, architecture, folder.as_deref());
    std::thread::scope(|scope| {
        let running: Vec<_> = texts.iter().map(|(_, text)| scope.spawn(|| one(text))).collect();
        let ended = running.into_iter().map(|r| {
            let panicked = |_| CudaError::Compile { log: "the thread that compiles panicked".into() };
            r.join().map_err(panicked)?
        });
        ended.collect()
    })
}

/// Where compiled kernels are kept: `onestep/cuda` in the user's cache folder.
pub(super) fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("onestep").join("cuda"))
}

/// The name of the file for a key.
pub(super) fn name(key: &str, kind: &str) -> String {
    format!("{:016x}.{kind}", stream_id(key))
}

/// All that the machine code depends on.
pub(super) fn key(version: (i32, i32), architecture: &str, text: &str) -> String {
    format!("nvrtc {}.{} {architecture} {}\n{text}", version.0, version.1, COMPILE_OPTIONS.join(" "))
}

fn cached(text: &str, architecture: &str, folder: Option<&Path>) -> Result<Vec<u8>, CudaError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both places are written.
    let asked = unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result();
    asked.map_err(|e| CudaError::Driver { call: "asking for NVRTC's version", message: format!("{e:?}") })?;
    let key = key((major, minor), architecture, text);
    let file = folder.map(|f| f.join(name(&key, "cubin")));
    if let Some(code) = file.as_deref().and_then(|f| read(f, &key)) {
        return Ok(code);
    }
    let code = by_nvrtc(text, architecture)?;
    if let Some(file) = file {
        // A cache that cannot be written costs time alone.
        let _ = write(&file, &key, &code);
    }
    Ok(code)
}

/// The code of a file that was written for this key.
pub(super) fn read(file: &Path, key: &str) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file).ok()?;
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (own, code) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    (own == key.as_bytes()).then(|| code.to_vec())
}

pub(super) fn write(file: &Path, key: &str, code: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let beside = file.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
    let bytes = [&(key.len() as u64).to_le_bytes()[..], key.as_bytes(), code].concat();
    std::fs::write(&beside, bytes)?;
    std::fs::rename(&beside, file)
}

fn by_nvrtc(text: &str, architecture: &str) -> Result<Vec<u8>, CudaError> {
    let refused = |log: String| CudaError::Compile { log };
    let source = CString::new(text).map_err(|e| refused(e.to_string()))?;
    let program = result::create_program(&source, None).map_err(|e| refused(format!("{e:?}")))?;
    let mut options: Vec<String> = COMPILE_OPTIONS.iter().map(|o| o.to_string()).collect();
    options.push(format!("--gpu-architecture={architecture}"));
    // SAFETY: the program was created above, and is destroyed once, after its last use.
    unsafe {
        let compiled = result::compile_program(program, &options);
        let code = match compiled {
            Ok(()) => cubin(program),
            Err(_) => Err(log(program)),
        };
        let _ = result::destroy_program(program);
        code.map_err(refused)
    }
}

/// # Safety
///
/// The program is compiled and not destroyed.
unsafe fn cubin(program: sys::nvrtcProgram) -> Result<Vec<u8>, String> {
    let mut size = 0;
    // SAFETY: the contract is the same.
    unsafe { sys::nvrtcGetCUBINSize(program, &mut size) }.result().map_err(|e| format!("{e:?}"))?;
    let mut code = vec![0u8; size];
    // SAFETY: there is room for that many bytes.
    unsafe { sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()) }
        .result()
        .map_err(|e| format!("{e:?}"))?;
    Ok(code)
}

/// # Safety
///
/// The program is not destroyed.
unsafe fn log(program: sys::nvrtcProgram) -> String {
    // SAFETY: the contract is the same.
    let log = unsafe { result::get_program_log(program) }.unwrap_or_default();
    let bytes: Vec<u8> = log.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_hit_for_its_own_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep").join("a.cubin");
        let (ours, other) = (key((13, 0), "sm_90a", "text"), key((13, 1), "sm_90a", "text"));
        assert_ne!(ours, key((13, 0), "sm_80", "text"));
        assert_eq!(read(&file, &ours), None);
        write(&file, &ours, b"code").unwrap();
        assert_eq!(read(&file, &ours).as_deref(), Some(&b"code"[..]));
        assert_eq!(read(&file, &other), None);
        std::fs::write(&file, b"cut").unwrap();
        assert_eq!(read(&file, &ours), None);
    }
}
