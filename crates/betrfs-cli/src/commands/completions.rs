//! `betrfs completions`: completions of the command line for shells.

use clap_complete::Shell;

use crate::failure::Outcome;
use crate::format::print;

/// Print the completions of this command for a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  betrfs completions bash > /etc/bash_completion.d/betrfs
  betrfs completions zsh > /usr/local/share/zsh/site-functions/_betrfs
  betrfs completions fish > ~/.config/fish/completions/betrfs.fish")]
pub struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the command; `program` is the definition of the whole command line.
pub fn run(arguments: &Arguments, mut program: clap::Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, "betrfs", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}
