//! Which witnesses to prove, and where each proof goes.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};

/// No name of a file is longer.
const LINE_BYTES_MAX: u64 = 1 << 14;

/// A witness and the files that come of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessFile {
    /// The witness.
    pub path: PathBuf,
    /// snarkjs's `proof.json`.
    pub proof: PathBuf,
    /// snarkjs's `public.json`.
    pub public: PathBuf,
}

/// Finds the witnesses that `arguments` name: files, folders (their `.wtns` files, by name), patterns, and `-` for a list on
/// `stdin`, one a line. Proofs go to the folder `output`.
///
/// A single file's are called `proof.json` and `public.json`, as snarkjs calls them; those of `NAME.wtns` among others
/// `NAME.proof.json` and `NAME.public.json`.
///
/// # Errors
/// Something that is not there, a pattern or folder without witnesses, two witnesses of one name.
pub fn collect(arguments: &[PathBuf], output: &Path, stdin: impl BufRead) -> Result<Vec<WitnessFile>, Failure> {
    let mut paths = Vec::new();
    let mut stdin = Some(stdin);
    for argument in arguments {
        if argument.as_os_str() == "-" {
            let lines = stdin.take().ok_or_else(|| usage("-", "it stands for standard input once"))?;
            read_list(lines, &mut paths)?;
        } else {
            find(argument, &mut paths)?;
        }
    }
    if paths.is_empty() {
        return Err(usage("--wtns", "there is no witness to prove"));
    }
    let single = matches!(arguments, [argument] if argument.is_file());
    if single {
        let (proof, public) = (output.join("proof.json"), output.join("public.json"));
        return Ok(paths
            .into_iter()
            .map(|path| WitnessFile { path, proof: proof.clone(), public: public.clone() })
            .collect());
    }
    name(paths, output)
}

/// Names on lines, whatever bytes they are of.
fn read_list(mut lines: impl BufRead, paths: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        match read.map_err(|e| bad_input("standard input", e))? {
            0 => return Ok(()),
            read if read as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n") => {
                return Err(bad_input(
                    "standard input",
                    "a line is longer than any file's name; give one witness a line",
                ));
            }
            _ => {}
        }
        let name = line.strip_suffix(b"\n").unwrap_or(&line);
        let name = name.strip_suffix(b"\r").unwrap_or(name);
        if !name.trim_ascii().is_empty() {
            paths.push(PathBuf::from(OsStr::from_bytes(name)));
        }
    }
}

fn find(argument: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let shown = argument.display().to_string();
    if argument.is_dir() {
        let mut found = Vec::new();
        for entry in fs::read_dir(argument).map_err(|e| bad_input(&shown, e))? {
            let path = entry.map_err(|e| bad_input(&shown, e))?.path();
            if path.extension().is_some_and(|ending| ending == "wtns") {
                found.push(path);
            }
        }
        if found.is_empty() {
            return Err(bad_input(&shown, "there is no .wtns file in this folder"));
        }
        found.sort();
        paths.append(&mut found);
        return Ok(());
    }
    let is_pattern = shown.contains(['*', '?', '[']);
    if argument.exists() || !is_pattern {
        paths.push(argument.to_owned());
        return Ok(());
    }
    let pattern = argument.to_str().ok_or_else(|| usage(&shown, "a pattern has to be UTF-8; name the folder"))?;
    // The pattern's matches come in alphabetical order.
    let matches = glob::glob(pattern).map_err(|e| usage(&shown, e))?;
    let before = paths.len();
    for path in matches {
        paths.push(path.map_err(|e| bad_input(&shown, e))?);
    }
    if paths.len() == before { Err(bad_input(&shown, "no file matches this pattern")) } else { Ok(()) }
}

/// Gives each its files' names.
fn name(paths: Vec<PathBuf>, output: &Path) -> Result<Vec<WitnessFile>, Failure> {
    let mut taken: HashMap<OsString, usize> = HashMap::new();
    let mut files: Vec<WitnessFile> = Vec::with_capacity(paths.len());
    for path in paths {
        let shown = path.display().to_string();
        // Whatever bytes it is of.
        let stem = path.file_stem().ok_or_else(|| usage(&shown, "is no file's name"))?.to_owned();
        let file = |ending: &str| {
            let mut name = stem.clone();
            name.push(format!(".{ending}.json"));
            output.join(name)
        };
        let (proof, public) = (file("proof"), file("public"));
        if let Some(other) = taken.insert(stem, files.len()) {
            let other = files[other].path.display();
            let proof = proof.display();
            return Err(usage(
                &shown,
                format!("its proof and that of {other} would both be {proof}; prove them apart"),
            ));
        }
        files.push(WitnessFile { path, proof, public });
    }
    Ok(files)
}

fn usage(what: &str, e: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, format!("{what}: {e}"))
}

fn bad_input(what: &str, e: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::BadInput, format!("{what}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arguments: &[&str], stdin: &str, folder: &Path) -> Result<Vec<String>, String> {
        let arguments: Vec<PathBuf> =
            arguments.iter().map(|name| if *name == "-" { "-".into() } else { folder.join(name) }).collect();
        let found = collect(&arguments, Path::new("out"), stdin.as_bytes()).map_err(|e| e.message)?;
        let names = |file: &WitnessFile| {
            let path = file.path.strip_prefix(folder).unwrap_or(&file.path).display().to_string();
            format!("{path} {} {}", file.proof.display(), file.public.display())
        };
        Ok(found.iter().map(names).collect())
    }

    #[test]
    fn files_folders_patterns_and_lists_are_found_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::create_dir(path.join("w")).unwrap();
        for name in ["a.wtns", "w/c.wtns", "w/b.wtns", "w/notes.txt"] {
            fs::write(path.join(name), "").unwrap();
        }
        let single = vec!["a.wtns out/proof.json out/public.json".to_owned()];
        assert_eq!(names(&["a.wtns"], "", path), Ok(single));
        let row = |path: &str, stem: &str| format!("{path} out/{stem}.proof.json out/{stem}.public.json");
        let in_folder = vec![row("w/b.wtns", "b"), row("w/c.wtns", "c")];
        assert_eq!(names(&["w"], "", path), Ok(in_folder.clone()));
        assert_eq!(names(&["w/*.wtns"], "", path), Ok(in_folder));
        let listed = names(&["-", "a.wtns"], "x.wtns\n\ny.wtns\n", path);
        assert_eq!(listed, Ok(vec![row("x.wtns", "x"), row("y.wtns", "y"), row("a.wtns", "a")]));
    }

    #[test]
    fn what_cannot_be_meant_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::create_dir_all(path.join("w/empty")).unwrap();
        for name in ["a.wtns", "w/a.wtns"] {
            fs::write(path.join(name), "").unwrap();
        }
        let error = |arguments: &[&str], stdin| names(arguments, stdin, path).unwrap_err();
        assert!(error(&["a.wtns", "w/a.wtns"], "").contains("would both be out/a.proof.json"));
        assert!(error(&["w/empty"], "").contains("no .wtns file"));
        assert!(error(&["*.none"], "").contains("no file matches"));
        assert!(error(&["-"], "\n").contains("no witness"));
        assert!(error(&["-", "-"], "a\n").contains("once"));
        let endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let refused = collect(&["-".into()], Path::new("out"), endless).unwrap_err();
        assert!(refused.message.contains("longer than any file's name"), "{}", refused.message);
        let bytes = collect(&["-".into()], Path::new("out"), &b"\xff.wtns\r\nb.wtns"[..]).unwrap();
        assert_eq!(bytes[0].path.as_os_str().as_bytes(), b"\xff.wtns");
        assert_eq!(bytes[0].proof.as_os_str().as_bytes(), b"out/\xff.proof.json");
        // Two that only look the same.
        let two = collect(&["-".into()], Path::new("out"), &b"\xff.wtns\n\xfe.wtns"[..]).unwrap();
        assert_ne!(two[0].proof, two[1].proof);
        assert_eq!(bytes[1].path, Path::new("b.wtns"));
    }
}
