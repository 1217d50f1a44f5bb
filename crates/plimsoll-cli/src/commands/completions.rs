//! `plimsoll completions` and `plimsoll man`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;

use crate::args::{Cli, Completions, Man};
use crate::exit::{Exit, Failure};

/// Prints a shell's completions.
pub fn run(args: &Completions) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "plimsoll", &mut text);
    print(&text)
}

/// Prints the manual page, or writes a page for each command.
pub fn man(args: &Man) -> Result<(), Failure> {
    let command = Cli::command();
    match &args.output {
        Some(folder) => {
            let failure = |e| Failure::new(Exit::Output, format!("{}: {e}", folder.display()));
            fs::create_dir_all(folder).map_err(failure)?;
            clap_mangen::generate_to(command, folder).map_err(failure)?;
            told(folder)
        }
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command).render(&mut text).map_err(|e| Failure::new(Exit::Internal, e))?;
            print(&text)
        }
    }
}

fn told(folder: &Path) -> Result<(), Failure> {
    crate::console::print(format!("{}: the pages are written; man -l shows one", folder.display()))
}

/// As it is: it is for a shell or for man, not for a terminal. A reader that went away is no failure.
fn print(text: &[u8]) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Output, format!("standard output: {e}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_completions_know_every_command() {
        let names: Vec<String> = Cli::command()
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(|command| command.get_name().to_owned())
            .collect();
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut text);
            let text = String::from_utf8(text).unwrap();
            for name in &names {
                assert!(text.contains(name.as_str()), "{shell}: {name}");
                assert!(page.contains(name.as_str()), "man: {name}");
            }
        }
        let folder = tempfile::tempdir().unwrap();
        man(&Man { output: Some(folder.path().join("man")) }).unwrap();
        assert!(folder.path().join("man/plimsoll-prove.1").is_file());
    }
}
