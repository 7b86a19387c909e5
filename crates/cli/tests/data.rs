//! Runs on a user's own data: a text, and images in IDX files; and what is said of data and options that do not fit.

use std::path::Path;
use std::process::{Command, Output};

fn train(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onestep"))
        .args(["train"])
        .args(args)
        .args(["--threads", "1", "--json", "--out"])
        .arg(folder.join("run"))
        .output()
        .unwrap()
}

/// The message of a command that fails, without a run kept.
fn refused(args: &[&str], folder: &Path) -> String {
    let out = train(args, folder);
    assert!(!out.status.success(), "{args:?}");
    assert!(!folder.join("run").exists(), "{args:?}");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn figures(out: &Output) -> serde_json::Value {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Sixty images of 8×8 pixels whose brightness is their class, and the first ten again as the test.
fn images(folder: &Path) {
    let put = |part: &str, count: u32| {
        let labels: Vec<u8> = (0..count).map(|i| (i % 10) as u8).collect();
        let pixels: Vec<u8> = labels.iter().flat_map(|&label| [label * 25; 64]).collect();
        let head = |magic: u8, sizes: &[u32]| {
            let sizes = sizes.iter().flat_map(|n| n.to_be_bytes());
            [0, 0, 8, magic].into_iter().chain(sizes).collect::<Vec<u8>>()
        };
        let write = |name: &str, head: Vec<u8>, data: &[u8]| {
            std::fs::write(folder.join(format!("{part}-{name}-ubyte")), [&head, data].concat()).unwrap();
        };
        write("images-idx3", head(3, &[count, 8, 8]), &pixels);
        write("labels-idx1", head(1, &[count]), &labels);
    };
    put("train", 60);
    put("t10k", 10);
}

#[test]
fn a_text_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text");
    std::fs::write(&file, "to be or not to be ".repeat(50)).unwrap();
    let path = file.to_str().unwrap();
    let text = refused(&["gpt", "--text", path], folder.path());
    assert!(text.contains("has 950 bytes; give a text of 10250 at least"), "{text}");
    let text = refused(&["gpt", "--text", "/no/such/file"], folder.path());
    assert!(text.contains("/no/such/file"), "{text}");

    std::fs::write(&file, "to be or not to be ".repeat(600)).unwrap();
    let out = train(&["gpt", "--text", path, "--steps", "2"], folder.path());
    assert!(figures(&out)["train_loss"].as_f64().unwrap() > 1.0);
}

#[test]
fn images_of_ones_own() {
    for network in ["mlp", "cnn"] {
        let folder = tempfile::tempdir().unwrap();
        images(folder.path());
        let data = folder.path().to_str().unwrap();
        let args = ["fashion", "--data", data, "--model", network, "--steps", "80", "--batch", "30"];
        let figures = figures(&train(&args, folder.path()));
        assert!(figures["test_accuracy"].as_f64().unwrap() > 0.15, "{network}: {figures}");
    }
}

#[test]
fn a_run_on_them_goes_on_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let (data, run) = (folder.path().to_str().unwrap(), folder.path().join("run"));
    let args = ["fashion", "--data", data, "--model", "cnn", "--batch", "25", "--steps", "7"];
    let resume = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onestep"));
        command.arg("train").args(args).args(["--threads", "2", "--json", "--resume"]).arg(&run);
        command.output().unwrap()
    };
    figures(&train(&[&args[..], &["--checkpoint-every", "5"]].concat(), folder.path()));
    let model = || std::fs::read(run.join("model.safetensors")).unwrap();
    let whole = model();
    std::fs::remove_file(run.join("model.safetensors")).unwrap();
    assert_eq!(figures(&resume())["steps"], 7);
    assert!(model() == whole);
    // Other images under the same names.
    let file = folder.path().join("train-images-idx3-ubyte");
    let mut pixels = std::fs::read(&file).unwrap();
    pixels[100] ^= 1;
    std::fs::write(&file, pixels).unwrap();
    let refused = resume();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("the data"), "{text}");
}

#[test]
fn data_and_options_that_do_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let data = folder.path().to_str().unwrap();
    for args in [["gpt", "--model", "cnn"], ["digits", "--data", data], ["fashion", "--text", data]] {
        let text = refused(&args, folder.path());
        assert!(text.contains("belongs to"), "{text}");
    }
    let labels = folder.path().join("t10k-labels-idx1-ubyte");
    let sound = std::fs::read(&labels).unwrap();
    std::fs::write(&labels, &sound[..sound.len() - 1]).unwrap();
    let text = refused(&["fashion", "--data", data], folder.path());
    assert!(text.contains("9 of 10 elements"), "{text}");
    let mut eleventh = sound.clone();
    eleventh[9] = 10;
    std::fs::write(&labels, eleventh).unwrap();
    let text = refused(&["fashion", "--data", data], folder.path());
    assert!(text.contains("ten classes"), "{text}");
    std::fs::remove_file(&labels).unwrap();
    let text = refused(&["fashion", "--data", data], folder.path());
    assert!(text.contains("t10k-labels"), "{text}");
}
