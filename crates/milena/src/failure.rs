//! How a command ends when it cannot do what it was asked: a sentence, and a number.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::config::Mistakes;

/// Why a command ended. The sentence says what to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The configuration or the command line is wrong; nothing was done. Exit code 2.
    Usage(String),
    /// What was asked for could not be done. Exit code 1.
    Failed(String),
    /// Whoever read the output has gone, which is how pipelines end. Exit code 0, nothing said.
    OutputClosed,
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::from(1),
            Self::OutputClosed => ExitCode::SUCCESS,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(sentences) | Self::Failed(sentences) => {
                for (index, sentence) in sentences.lines().enumerate() {
                    let lead = if index == 0 { "milena: " } else { "\nmilena: " };
                    write!(f, "{lead}{sentence}")?;
                }
                Ok(())
            }
            Self::OutputClosed => Ok(()),
        }
    }
}

impl From<Mistakes> for Failure {
    fn from(mistakes: Mistakes) -> Self {
        Self::Usage(mistakes.to_string())
    }
}

/// An error of writing to standard output.
pub(crate) fn output(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::Failed(format!("standard output cannot be written: {error}")),
    }
}

/// Says something on standard error that is no failure.
pub(crate) fn note(sentence: &str) {
    // Nobody may be reading; it is a courtesy.
    let _ = writeln!(io::stderr(), "milena: {sentence}");
}

/// Writes `text` to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| output(&error))
}
