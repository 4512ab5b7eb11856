//! `milena users`: the file of users that may log in, without a server.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use milena_auth::verifier::{BadVerifier, ITERATIONS_MAX, ITERATIONS_MIN};
use milena_auth::{Hash, Users, Verifier, prepare, users};
use milena_server::authentication::{FileError, change_users_file};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::failure::{Failure, print};
use crate::passwords::{first_line, password_in, verifier};

/// `milena users`.
#[derive(Debug, Args)]
pub(crate) struct UsersArgs {
    #[command(subcommand)]
    command: UsersCommand,
}

#[derive(Debug, Subcommand)]
enum UsersCommand {
    /// Add a user, or give one a new password. The password is read from standard input unless a flag says otherwise
    Add(AddArgs),
    /// Remove a user
    Remove(RemoveArgs),
    /// List users and what their passwords can be checked with
    List(ListArgs),
}

/// Which file.
#[derive(Debug, Args)]
struct FileArgs {
    /// File of users, as `sasl.users_file` names it
    #[arg(long, env = "MILENA_SASL_USERS_FILE", value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, Args)]
struct AddArgs {
    /// Name of the user
    name: String,
    #[command(flatten)]
    file: FileArgs,
    /// Take the first line of this file as the password
    #[arg(long, value_name = "FILE", conflicts_with = "password_variable")]
    password_file: Option<PathBuf>,
    /// Take the value of this environment variable as the password
    #[arg(long, value_name = "VARIABLE")]
    password_variable: Option<String>,
    /// Make an entry for this mechanism alone; without it for both. PLAIN is checked with either
    #[arg(long, value_name = "MECHANISM", value_parser = ["SCRAM-SHA-256", "SCRAM-SHA-512"])]
    mechanism: Option<String>,
    /// How often the hash is applied: more costs whoever guesses more, and each login too
    #[arg(long, value_name = "NUMBER", default_value_t = ITERATIONS_MIN,
          value_parser = clap::value_parser!(u32).range(i64::from(ITERATIONS_MIN)..=i64::from(ITERATIONS_MAX)))]
    iterations: u32,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// Name of the user
    name: String,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    file: FileArgs,
}

pub(crate) fn run(args: &UsersArgs) -> Result<(), Failure> {
    match &args.command {
        UsersCommand::Add(args) => add(args),
        UsersCommand::Remove(args) => remove(args),
        UsersCommand::List(args) => list(args),
    }
}

fn add(args: &AddArgs) -> Result<(), Failure> {
    let name = &args.name;
    users::check_name(name).map_err(|problem| Failure::Usage(format!("the name cannot be used: {problem}")))?;
    let password = password(args)?;
    prepare::check(&password).map_err(|problem| Failure::Usage(format!("the password cannot be used: {problem}")))?;
    let wanted = |hash: &Hash| args.mechanism.as_deref().is_none_or(|only| only == hash.mechanism());
    let verifiers: Result<Vec<Verifier>, BadVerifier> =
        Hash::ALL.into_iter().filter(wanted).map(|hash| verifier(hash, &password, args.iterations)).collect();
    let verifiers = verifiers.map_err(|problem| Failure::Failed(problem.to_string()))?;
    let existed = change_users_file(&args.file.file, |text| (users::with(text, name, &verifiers), has(text, name)))?;
    let what = if existed { "has a new password" } else { "was added" };
    print(&format!("user {name} {what}\n"))
}

fn has(text: &str, name: &str) -> bool {
    Users::parse(text).is_ok_and(|users| users.get(name).is_some())
}

fn remove(args: &RemoveArgs) -> Result<(), Failure> {
    let name = &args.name;
    let existed = change_users_file(&args.file.file, |text| (users::without(text, name, None), has(text, name)))?;
    if existed {
        return print(&format!("user {name} was removed\n"));
    }
    Err(Failure::Failed(format!("there is no user {name} in {}", args.file.file.display())))
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let file = &args.file.file;
    let failed =
        |problem: String| Failure::Failed(format!("the users file {} cannot be used: {problem}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let users = Users::parse(&text).map_err(|error| failed(error.to_string()))?;
    let mut lines: Vec<String> = users
        .iter()
        .map(|(name, user)| {
            let of =
                |hash: Hash| user.verifier(hash).map(|known| format!("{} ({})", hash.mechanism(), known.iterations()));
            format!("{name}\t{}\n", Hash::ALL.into_iter().filter_map(of).collect::<Vec<_>>().join(", "))
        })
        .collect();
    lines.sort();
    print(&lines.concat())
}

/// The password, from where the flags say. One that is typed is not shown.
fn password(args: &AddArgs) -> Result<String, Failure> {
    if let Some(file) = &args.password_file {
        return password_in(file)
            .map_err(|error| Failure::Failed(format!("{} cannot be read: {error}", file.display())));
    }
    if let Some(variable) = &args.password_variable {
        return std::env::var(variable).map_err(|_| Failure::Usage(format!("the variable {variable} is not set")));
    }
    let failed = |error: io::Error| Failure::Failed(format!("the password cannot be read: {error}"));
    let input = io::stdin();
    let _hidden = if input.is_terminal() {
        // Nobody may be reading; it is a courtesy.
        let _ = io::stderr().write_all(b"Password: ");
        Hidden::begin().map_err(failed)?
    } else {
        None
    };
    let mut line = String::new();
    input.lock().read_line(&mut line).map_err(failed)?;
    Ok(first_line(&line))
}

/// A terminal that does not show what is typed, until this is dropped.
struct Hidden(rustix::termios::Termios);

impl Hidden {
    fn begin() -> io::Result<Option<Self>> {
        let shown = tcgetattr(io::stdin())?;
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Some(Self(shown)))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
        let _ = io::stderr().write_all(b"\n");
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::Failed(error.to_string())
    }
}
