//! Compiles `tests/c/ledger.c` against the header, links it with the library in both its forms, and runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory that holds this test, and beside it the library as it was just built.
fn built() -> PathBuf {
    std::env::current_exe().expect("a test has a path").parent().expect("and a directory").to_owned()
}

/// `None`, with a message, where the machine has no C compiler.
fn compiler() -> Option<String> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    match Command::new(&compiler).arg("--version").output() {
        Ok(_) => Some(compiler),
        Err(error) => {
            eprintln!("skipped: no C compiler ({compiler}: {error}); install one or set CC");
            None
        }
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

fn compile(compiler: &str, name: &str) -> (Command, PathBuf) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = built().join(name);
    let mut command = Command::new(compiler);
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-D_POSIX_C_SOURCE=200809L", "-I"]);
    command.arg(root.join("include")).arg("-o").arg(&program).arg(root.join("tests/c/ledger.c"));
    (command, program)
}

#[test]
fn a_c_program_works_with_the_static_library() {
    let Some(compiler) = compiler() else { return };
    let (mut command, program) = compile(&compiler, "plimsoll_c_static");
    run(command.arg(built().join("libplimsoll_capi.a")).args(["-lpthread", "-ldl", "-lm"]));
    assert_eq!(run(&mut Command::new(program)), "all is well\n");
}

#[test]
fn a_c_program_works_with_the_shared_library() {
    let Some(compiler) = compiler() else { return };
    let (mut command, program) = compile(&compiler, "plimsoll_c_shared");
    run(command.arg("-L").arg(built()).args(["-lplimsoll_capi", "-lpthread"]));
    // Where the test looks for it, not where cargo's last build of the package put it.
    assert_eq!(run(Command::new(program).env("LD_LIBRARY_PATH", built())), "all is well\n");
}

#[test]
fn the_header_is_cpp_too() {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if Command::new(&compiler).arg("--version").output().is_err() {
        eprintln!("skipped: no C++ compiler; install one or set CXX");
        return;
    }
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/plimsoll.h");
    run(Command::new(compiler).args(["-std=c++11", "-Wall", "-Wextra", "-fsyntax-only", "-x", "c++"]).arg(header));
}
