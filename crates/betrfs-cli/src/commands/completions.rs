//! `betrfs completions`: completions of the command line for shells.

use clap::builder::PossibleValuesParser;
use clap_complete::Shell;

use crate::failure::Outcome;
use crate::format::print;
use crate::helper::{HELPERS, command_of};

/// Print the completions of this command for a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  betrfs completions bash > /etc/bash_completion.d/betrfs
  betrfs completions zsh > /usr/local/share/zsh/site-functions/_betrfs
  betrfs completions fish > ~/.config/fish/completions/betrfs.fish
  betrfs completions bash mkfs.betrfs > /etc/bash_completion.d/mkfs.betrfs")]
pub struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
    /// The name under which the program is called: `betrfs`, or that of a helper
    #[arg(value_parser = PossibleValuesParser::new(names()), default_value = OWN_NAME, hide_possible_values = true)]
    name: String,
}

/// The program's own name.
const OWN_NAME: &str = "betrfs";

fn names() -> impl Iterator<Item = &'static str> {
    [OWN_NAME].into_iter().chain(HELPERS)
}

/// Runs the command; `program` is the definition of the whole command line.
pub fn run(arguments: &Arguments, program: &clap::Command) -> Outcome {
    print(script(arguments.shell, &arguments.name, program).trim_end())
}

/// The script for the program under a name; a helper is one of its commands.
fn script(shell: Shell, name: &str, program: &clap::Command) -> String {
    let command = command_of(name).and_then(|command| program.find_subcommand(command)).unwrap_or(program);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(command), name, &mut script);
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
            let script = script(*shell, OWN_NAME, &crate::Arguments::command());
            for offered in ["cache-size", "snapshot", "keep-hourly", "verbose", "prometheus"] {
                assert!(script.contains(offered), "{offered}: {shell}");
            }
            for hidden in ["volume-is-open", "replay-progress", "to-syslog", "--detach"] {
                assert!(!script.contains(hidden), "{hidden}: {shell}");
            }
        }
    }

    #[test]
    fn helpers_have_the_options_of_their_commands() {
        for shell in Shell::value_variants() {
            let script = |name| script(*shell, name, &crate::Arguments::command());
            for (name, offered) in [("mkfs.betrfs", "grow-to"), ("fsck.betrfs", "undo")] {
                let script = script(name);
                assert!(script.contains(name) && script.contains(offered), "{name}: {shell}: {script}");
                assert!(!script.contains("snapshot"), "{name}: {shell}");
            }
        }
        assert!(names().all(|name| name == OWN_NAME || command_of(name).is_some()));
    }
}
