//! Certificate, key and authorities in files, read and checked.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};

use crate::certificate::Validity;

/// Largest file that is read. A bundle of all public authorities has some 250 KiB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Permission of everybody else to read a file.
const READ_BY_OTHERS: u32 = 0o004;

/// What is configured of the TLS of a port. All files are PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate first, then those that lead to an authority.
    pub certificate: PathBuf,
    /// Its private key: PKCS#8, SEC1 or PKCS#1, not encrypted.
    pub key: PathBuf,
    /// Whether clients show certificates.
    pub client_auth: ClientAuth,
    /// Authorities of the certificates of clients.
    pub client_ca: Option<PathBuf>,
}

/// Whether clients show certificates of their own (mutual TLS); as Kafka's `ssl.client.auth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientAuth {
    /// They are not asked for one.
    #[default]
    None,
    /// They may; one that is shown must be good.
    Requested,
    /// They must.
    Required,
}

impl ClientAuth {
    /// Their names in the configuration.
    pub const NAMES: [&str; 3] = ["none", "requested", "required"];

    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Requested => "requested",
            Self::Required => "required",
        }
    }

    /// What `name` says in the configuration.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        [Self::None, Self::Requested, Self::Required].into_iter().find(|choice| choice.name() == name)
    }
}

/// Files that cannot be used, as a sentence that names the key and the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file is not there, or may not be read.
    #[error("{key} {} cannot be read: {source}", .path.display())]
    Read {
        /// Key of the configuration.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file holds more than any certificate.
    #[error("{key} {} has more than {FILE_BYTES_MAX} bytes; is it the right file?", .path.display())]
    TooLarge {
        /// Key of the configuration.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// There is no certificate in the file.
    #[error("{key} {} holds no certificate; it must be PEM, with `-----BEGIN CERTIFICATE-----`", .path.display())]
    NoCertificate {
        /// Key of the configuration.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// What stands in the file as a certificate is none.
    #[error("{key} {} is damaged: {reason}", .path.display())]
    Certificate {
        /// Key of the configuration.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// There is no private key in the file.
    #[error("key_file {} holds no private key; it must be PEM, with PKCS#8, SEC1 or PKCS#1", .path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The private key is encrypted, and nobody is there to type a password.
    #[error("key_file {} is encrypted; decrypt it with `openssl pkey`, and let only this user read it", .path.display())]
    EncryptedKey {
        /// The file.
        path: PathBuf,
    },
    /// The private key is damaged or of a kind that is not known.
    #[error("key_file {} cannot be used: {reason}", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: rustls::Error,
    },
    /// Certificate and key are not a pair.
    #[error(
        "key_file {} does not belong to the first certificate of certificate_file {}; the server's own certificate must come \
         first there",
        .key.display(), .certificate.display()
    )]
    NotAPair {
        /// File of the key.
        key: PathBuf,
        /// File of the certificate.
        certificate: PathBuf,
    },
    /// Clients are to show certificates, and nobody says whose.
    #[error("client_auth is `{0}`, so client_ca_file must name the authorities of the clients' certificates")]
    NoClientCa(&'static str),
    /// They were not read, for a fault of this program.
    #[error("certificate_file and key_file could not be read, for a fault of this program")]
    Failed,
    /// Authorities are named, and clients are not asked.
    #[error("client_ca_file is set and client_auth is `none`, so clients would not be asked; set it to `required`")]
    UnusedClientCa,
}

/// What should not stay so, and does not keep a port from being served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// Clients refuse the certificate.
    #[error("the certificate in certificate_file {} expired on {}", .path.display(), date(*.not_after))]
    Expired {
        /// The file.
        path: PathBuf,
        /// When.
        not_after: SystemTime,
    },
    /// Clients refuse the certificate for now.
    #[error("the certificate in certificate_file {} is not good before {}", .path.display(), date(*.not_before))]
    NotYet {
        /// The file.
        path: PathBuf,
        /// When it begins to be.
        not_before: SystemTime,
    },
    /// Everybody on the machine can read the private key.
    #[error("everybody on this machine can read key_file {} (mode {mode:o}); take that away with `chmod o-r`", .path.display())]
    KeyForAll {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// The day of a time in UTC, as people write it in logs.
pub(crate) fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let when = x509_parser::time::ASN1Time::from_timestamp(i64::try_from(seconds).unwrap_or(i64::MAX));
    when.map_or_else(|_| format!("{seconds} seconds after 1970"), |when| when.to_string())
}

/// Files that belong together, ready for handshakes.
#[derive(Clone)]
pub struct Loaded {
    pub(crate) config: Arc<ServerConfig>,
    /// When the server's certificate is good.
    pub validity: Validity,
    /// What should not stay so.
    pub warnings: Vec<Warning>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded")
            .field("validity", &self.validity)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

/// Reads and checks the files of a port. Blocks; warnings are those of the moment `now`.
///
/// # Errors
/// What keeps the port from being served.
pub fn load(files: &TlsFiles, now: SystemTime) -> Result<Loaded, TlsError> {
    Contents::read(files).loaded(files, now)
}

/// The one provider of cryptography that is used here, whatever others are in the program.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// What is in the files of a port.
pub(crate) struct Contents {
    certificate: Result<Vec<u8>, TlsError>,
    key: Result<(Vec<u8>, u32), TlsError>,
    client_ca: Option<Result<Vec<u8>, TlsError>>,
}

impl Contents {
    pub(crate) fn read(files: &TlsFiles) -> Self {
        let without_mode = |read: Result<(Vec<u8>, u32), TlsError>| read.map(|(bytes, _)| bytes);
        Self {
            certificate: without_mode(read("certificate_file", &files.certificate)),
            key: read("key_file", &files.key),
            client_ca: files.client_ca.as_ref().map(|path| without_mode(read("client_ca_file", path))),
        }
    }

    /// A number that differs when the contents do.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        let mut add = |read: Result<&[u8], &TlsError>| {
            let text = read.map_err(ToString::to_string);
            let bytes = text.as_ref().copied().unwrap_or_else(|error| error.as_bytes());
            hasher.update([u8::from(text.is_ok())]);
            hasher.update((bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        add(self.certificate.as_deref());
        add(self.key.as_ref().map(|(bytes, _)| bytes.as_slice()));
        if let Some(authorities) = &self.client_ca {
            add(authorities.as_deref());
        }
        hasher.finalize().into()
    }

    pub(crate) fn loaded(self, files: &TlsFiles, now: SystemTime) -> Result<Loaded, TlsError> {
        let provider = provider();
        let chain = certificates("certificate_file", &files.certificate, &self.certificate?)?;
        let validity = chain.first().and_then(|first| Validity::of(first)).ok_or_else(|| TlsError::Certificate {
            key: "certificate_file",
            path: files.certificate.clone(),
            reason: "its first certificate cannot be read".to_owned(),
        })?;
        let (key, mode) = self.key?;
        let key = private_key(&files.key, &key)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let of_key = |reason| TlsError::Key { path: files.key.clone(), reason };
        let builder = builder.with_safe_default_protocol_versions().map_err(of_key)?;
        let builder = match (files.client_auth, &files.client_ca, self.client_ca) {
            (ClientAuth::None, None, _) => builder.with_no_client_auth(),
            (ClientAuth::None, Some(_), _) => return Err(TlsError::UnusedClientCa),
            (asked, Some(path), Some(authorities)) => {
                let verifier = client_verifier(asked, path, &authorities?, provider)?;
                builder.with_client_cert_verifier(verifier)
            }
            (asked, ..) => return Err(TlsError::NoClientCa(asked.name())),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|reason| match reason {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsError::NotAPair { key: files.key.clone(), certificate: files.certificate.clone() }
            }
            rustls::Error::InvalidCertificate(reason) => TlsError::Certificate {
                key: "certificate_file",
                path: files.certificate.clone(),
                reason: reason.to_string(),
            },
            reason => of_key(reason),
        })?;
        if files.client_auth != ClientAuth::None {
            // A session that is resumed takes the certificate that it began with as it was: one that has ended or whose
            // authority is gone would go on.
            config.session_storage = Arc::new(NoServerSessionStorage {});
        }
        Ok(Loaded { config: Arc::new(config), validity, warnings: warnings(files, validity, mode, now) })
    }
}

fn warnings(files: &TlsFiles, validity: Validity, mode: u32, now: SystemTime) -> Vec<Warning> {
    let Validity { not_before, not_after } = validity;
    let path = || files.certificate.clone();
    let expired = (not_after < now).then(|| Warning::Expired { path: path(), not_after });
    let not_yet = (not_before > now).then(|| Warning::NotYet { path: path(), not_before });
    let for_all = (mode & READ_BY_OTHERS != 0).then(|| Warning::KeyForAll { path: files.key.clone(), mode });
    expired.into_iter().chain(not_yet).chain(for_all).collect()
}

/// The bytes of a file, and its permissions.
fn read(key: &'static str, path: &Path) -> Result<(Vec<u8>, u32), TlsError> {
    let failed = |source| TlsError::Read { key, path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    let mut bytes = Vec::new();
    // One more, to see that there are more.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        Err(TlsError::TooLarge { key, path: path.to_owned() })
    } else {
        Ok((bytes, mode))
    }
}

fn certificates(key: &'static str, path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let damaged = |reason: rustls::pki_types::pem::Error| TlsError::Certificate {
        key,
        path: path.to_owned(),
        reason: reason.to_string(),
    };
    let read = read.map_err(damaged)?;
    if read.is_empty() { Err(TlsError::NoCertificate { key, path: path.to_owned() }) } else { Ok(read) }
}

fn private_key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        // `BEGIN ENCRYPTED PRIVATE KEY`, and `Proc-Type: 4,ENCRYPTED` within the older forms.
        let encrypted = pem.windows(9).any(|part| part == b"ENCRYPTED");
        let path = path.to_owned();
        if encrypted { TlsError::EncryptedKey { path } } else { TlsError::NoKey { path } }
    })
}

fn client_verifier(
    asked: ClientAuth,
    path: &Path,
    pem: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let roots = Arc::new(roots("client_ca_file", path, pem, true)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider);
    let builder = if asked == ClientAuth::Requested { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|reason| TlsError::Certificate {
        key: "client_ca_file",
        path: path.to_owned(),
        reason: reason.to_string(),
    })
}

/// The authorities of a PEM file. With `strict` each of them must be one that can be used; a list of the system may have
/// some of older times.
pub(crate) fn authorities(key: &'static str, path: &Path, strict: bool) -> Result<RootCertStore, TlsError> {
    roots(key, path, &read(key, path)?.0, strict)
}

fn roots(key: &'static str, path: &Path, pem: &[u8], strict: bool) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(key, path, pem)? {
        match roots.add(certificate) {
            Err(reason) if strict => {
                return Err(TlsError::Certificate { key, path: path.to_owned(), reason: reason.to_string() });
            }
            _ => {}
        }
    }
    if roots.is_empty() { Err(TlsError::NoCertificate { key, path: path.to_owned() }) } else { Ok(roots) }
}
