//! The client commands, on top of [`milena::client`], and those that work on a data folder.
//!
//! - [`topics`]: list, create, describe, alter, grow, delete topics; delete their records
//! - [`produce`]: lines of standard input become records
//! - [`consume`]: records become lines of standard output
//! - [`groups`], [`reset`]: list, describe, delete consumer groups; set where they go on
//! - [`data`]: check, repair and copy a data folder
//! - [`users`]: the file of users that may log in
//! - [`offsets`]: move committed offsets from one place to the other, without a server
//! - [`record_line`]: the JSON form that both speak, exact for any record

pub(crate) mod consume;
pub(crate) mod data;
pub(crate) mod groups;
pub(crate) mod offsets;
pub(crate) mod produce;
pub(crate) mod record_line;
pub(crate) mod reset;
pub(crate) mod topics;
pub(crate) mod users;

use std::future::Future;
use std::path::PathBuf;

use clap::Args;
use milena::client::{Address, Client, ClientError, Login, Settings};
use milena_auth::Mechanism;
use milena_tls::Connector;

use crate::failure::Failure;
use crate::passwords::password_in;

/// Where the password of the client commands is, when no flag says; a server has its one user's there.
const PASSWORD_VARIABLE: &str = "MILENA_SASL_PASSWORD";

/// Where to connect.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConnectArgs {
    /// Address of a server; several with commas between them
    #[arg(long, short, env = "MILENA_BOOTSTRAP", default_value = "127.0.0.1:9092", value_name = "HOST:PORT")]
    bootstrap: String,
    /// Connect over TLS; the certificate of the server is always verified
    #[arg(long, env = "MILENA_TLS")]
    tls: bool,
    /// PEM file of the authorities that are trusted, instead of those of the system; switches TLS on
    #[arg(long, env = "MILENA_TLS_CA_FILE", value_name = "FILE")]
    tls_ca_file: Option<PathBuf>,
    /// Log in by this mechanism; the password comes from --sasl-password-file or MILENA_SASL_PASSWORD
    #[arg(long, env = "MILENA_SASL_MECHANISM", value_name = "MECHANISM", requires = "sasl_username",
          value_parser = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])]
    sasl_mechanism: Option<String>,
    /// Name to log in with
    #[arg(long, env = "MILENA_SASL_USERNAME", value_name = "NAME")]
    sasl_username: Option<String>,
    /// Take the first line of this file as the password
    #[arg(long, env = "MILENA_SASL_PASSWORD_FILE", value_name = "FILE")]
    sasl_password_file: Option<PathBuf>,
}

impl ConnectArgs {
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let addresses = Address::parse_list(&self.bootstrap).map_err(|error| Failure::Usage(error.to_string()))?;
        let tls = match &self.tls_ca_file {
            None if !self.tls => None,
            file => Some(Connector::new(file.as_deref()).map_err(|error| Failure::Failed(error.to_string()))?),
        };
        let login = self.login()?;
        Ok(Client::connect(&addresses, Settings { tls, login, ..Settings::default() }).await?)
    }

    /// Who the user is, where a mechanism is named.
    fn login(&self) -> Result<Option<Login>, Failure> {
        let Some(mechanism) = self.sasl_mechanism.as_deref().and_then(Mechanism::of) else { return Ok(None) };
        let name = self.sasl_username.clone().unwrap_or_default();
        let password = match &self.sasl_password_file {
            Some(file) => password_in(file)
                .map_err(|error| Failure::Failed(format!("{} cannot be read: {error}", file.display())))?,
            None => std::env::var(PASSWORD_VARIABLE).map_err(|_| {
                Failure::Usage(format!(
                    "there is no password; set {PASSWORD_VARIABLE}, or name a file with --sasl-password-file"
                ))
            })?,
        };
        Ok(Some(Login { mechanism, name, password }))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Runs a client command to its end on this thread.
pub(crate) fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("the client cannot start: {error}")))?;
    let outcome = runtime.block_on(command);
    // A thread that still waits for a line of input must not keep the process alive.
    runtime.shutdown_background();
    outcome
}
