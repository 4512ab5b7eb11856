//! Certificates that are made while a test runs, and clients that trust them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_tls::{ClientAuth, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};

use crate::SOON;

/// Both versions of TLS that are spoken.
pub const BOTH: &[&SupportedProtocolVersion] = &[&version::TLS12, &version::TLS13];

/// The name that certificates of servers have, beside those of loopback.
pub const NAME: &str = "kafka.test";

/// An authority, and the files of what it signed.
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, in files.
#[derive(Debug, Clone)]
pub struct Signed {
    /// PEM of the certificate.
    pub certificate: PathBuf,
    /// PEM of the key, PKCS#8.
    pub key: PathBuf,
}

impl Signed {
    /// As the files of a port whose clients show nothing.
    #[must_use]
    pub fn files(&self) -> TlsFiles {
        let Self { certificate, key } = self.clone();
        TlsFiles { certificate, key, client_auth: ClientAuth::None, client_ca: None }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Another authority than any before.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().unwrap();
        let folder = TempDir::with_prefix("milena-tls-").unwrap();
        std::fs::write(folder.path().join("authority.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    /// Folder of all files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// PEM of the authority's own certificate.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// Signs a certificate for [`NAME`] and loopback; a file of that name is replaced.
    pub fn sign(&self, name: &str) -> Signed {
        self.sign_with(name, |_| {})
    }

    /// As [`Authority::sign`], good until the first day of a year begins, in UTC.
    pub fn sign_until(&self, name: &str, year: i32) -> Signed {
        self.sign_with(name, |params| params.not_after = rcgen::date_time_ymd(year, 1, 1))
    }

    /// As [`Authority::sign`], with changes.
    pub fn sign_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let names = [NAME, "localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut params = CertificateParams::new(names.to_vec()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = |kind: &str| self.folder.path().join(format!("{name}.{kind}.pem"));
        let signed = Signed { certificate: path("certificate"), key: path("key") };
        std::fs::write(&signed.certificate, certificate.pem()).unwrap();
        std::fs::write(&signed.key, key.serialize_pem()).unwrap();
        signed
    }

    /// A client that trusts this authority, speaks these versions, and shows `shown`.
    #[must_use]
    pub fn client(&self, versions: &[&'static SupportedProtocolVersion], shown: Option<&Signed>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.file()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots);
        Arc::new(match shown {
            None => builder.with_no_client_auth(),
            Some(Signed { certificate, key }) => {
                let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
            }
        })
    }
}

/// Does the handshake with the server at `address` as [`NAME`].
///
/// # Errors
/// What rustls or the system says.
pub async fn connect(config: &Arc<ClientConfig>, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = timeout(SOON, TcpStream::connect(address)).await.expect("a connection in time")?;
    let name = ServerName::try_from(NAME).unwrap();
    let connecting = tokio_rustls::TlsConnector::from(Arc::clone(config)).connect(name, stream);
    timeout(SOON, connecting).await.expect("a handshake in time")
}
