//! The client's side: verified always.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::files::{TlsError, authorities, provider};

/// Makes connections over TLS to servers whose certificates lead to authorities that are trusted.
#[derive(Clone)]
pub struct Connector(Arc<ClientConfig>);

/// Why there is no connection over TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectorError {
    /// The authorities cannot be read.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// No authorities are named, and the system has none.
    #[error("this system has no list of trusted authorities where such lists are; name a file of them")]
    NoAuthorities,
    /// The library refuses the configuration.
    #[error("TLS cannot be used: {0}")]
    Library(#[from] rustls::Error),
}

/// Where systems keep the authorities that they trust, one file for all.
const SYSTEM_FILES: [&str; 4] = [
    // Debian, Ubuntu, Arch, Alpine
    "/etc/ssl/certs/ca-certificates.crt",
    // Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",
    // openSUSE
    "/etc/ssl/ca-bundle.pem",
    // Alpine, macOS, BSD
    "/etc/ssl/cert.pem",
];

impl Connector {
    /// Trusts the authorities of the PEM file, or those that the system trusts. Blocks.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn new(ca_file: Option<&Path>) -> Result<Self, ConnectorError> {
        let named_by_variable = || std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        let of_system = || SYSTEM_FILES.iter().map(PathBuf::from).find(|path| path.is_file());
        let path = ca_file.map(Path::to_owned).or_else(named_by_variable).or_else(of_system);
        let roots = authorities("tls-ca-file", &path.ok_or(ConnectorError::NoAuthorities)?, ca_file.is_some())?;
        Ok(Self::trusting(roots)?)
    }

    fn trusting(roots: RootCertStore) -> Result<Self, rustls::Error> {
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        Ok(Self(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
    }

    /// Does the handshake with the server that is to be `host`: a name, or an IP address, which its certificate must have.
    ///
    /// # Errors
    /// What rustls or the system says.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        tokio_rustls::TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}
