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
pub fn run(arguments: &Arguments, program: &clap::Command) -> Outcome {
    print(script(arguments.shell, program).trim_end())
}

fn script(shell: Shell, program: &clap::Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(program), "betrfs", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// A command without what its help hides, which the scripts would offer.
fn shown(command: &clap::Command) -> clap::Command {
    let mut shown_command = clap::Command::new(command.get_name().to_owned());
    if let Some(about) = command.get_about() {
        shown_command = shown_command.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown_command = shown_command.version(version.to_owned());
    }
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned();
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set()).map(shown);
    shown_command.args(arguments).subcommands(commands)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, ValueEnum};

    use super::*;

    #[test]
    fn options_that_the_help_hides_are_not_offered() {
        for shell in Shell::value_variants() {
            let script = script(*shell, &crate::Arguments::command());
            for offered in ["cache-size", "snapshot", "keep-hourly", "verbose", "prometheus"] {
                assert!(script.contains(offered), "{offered}: {shell}");
            }
            for hidden in ["volume-is-open", "replay-progress", "to-syslog", "--detach"] {
                assert!(!script.contains(hidden), "{hidden}: {shell}");
            }
        }
    }
}
