//! TLS to the server: a certificate of an authority that is trusted, and everything else.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use milena_store::testing::{TestMessage, batch_of};
use milena_store::{Store, TopicSettings};
use milena_store_iggy::{IggyConfig, IggyStore, OpenError, SecretString, TlsConfig};
use milena_testkit::IggyServers;
use milena_testkit::iggy_server::{PASSWORD, USER};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::case::{Case, Servers, Setup, door};

const NAME: &str = "iggy.test";

/// An authority with a certificate that it signed, in files.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        // The SDK's own choice, of which there are two in one program.
        let _ = tokio_rustls::rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![NAME.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let files = Self { folder: TempDir::with_prefix("milena-tls-").unwrap() };
        for (name, text) in
            [("authority", authority_pem), ("certificate", certificate.pem()), ("key", key.serialize_pem())]
        {
            std::fs::write(files.path(name), text).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.pem"))
    }
}

/// A server that speaks TLS: the door behind something that ends TLS, or a real one by itself.
struct TlsServer {
    address: SocketAddr,
    files: Files,
    _case: Option<Case>,
    _servers: Option<IggyServers>,
}

impl TlsServer {
    async fn door() -> Self {
        let files = Files::new();
        let case = Box::pin(Case::start(door(), Setup::default())).await.unwrap();
        let target = case.servers.addresses()[0];
        assert!(matches!(case.servers, Servers::Door(_)));
        let chain = vec![CertificateDer::from_pem_file(files.path("certificate")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(files.path("key")).unwrap();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut client) = acceptor.accept(client).await else { return };
                    let mut server = TcpStream::connect(target).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, files, _case: Some(case), _servers: None }
    }

    fn real() -> Option<Self> {
        let Some(binary) = IggyServers::binary() else {
            eprintln!("skipped: TEST_IGGY_SERVER names no binary of an Iggy server");
            return None;
        };
        let files = Files::new();
        let (certificate, key) = (files.path("certificate"), files.path("key"));
        let envs = [
            ("IGGY_TCP_TLS_ENABLED", "true"),
            ("IGGY_TCP_TLS_SELF_SIGNED", "false"),
            ("IGGY_TCP_TLS_CERT_FILE", certificate.to_str().unwrap()),
            ("IGGY_TCP_TLS_KEY_FILE", key.to_str().unwrap()),
        ];
        let servers = tokio::task::block_in_place(|| IggyServers::start(&binary, 1, &envs));
        Some(Self { address: servers.addresses()[0], files, _case: None, _servers: Some(servers) })
    }

    fn config(&self, tls: Option<TlsConfig>) -> IggyConfig {
        IggyConfig {
            tls,
            state_stream: "gateway-tls".to_owned(),
            instance: 5,
            connect_timeout: Duration::from_secs(2),
            start_timeout: Duration::from_secs(3),
            ..IggyConfig::new(&self.address.to_string(), USER, SecretString::from(PASSWORD.to_owned()))
        }
    }

    /// What the start says within its time.
    async fn refusal(&self, tls: Option<TlsConfig>) -> String {
        let started = Instant::now();
        let error = Box::pin(IggyStore::open(self.config(tls))).await.err().expect("it starts");
        assert!(started.elapsed() < Duration::from_secs(20), "it took {:?}", started.elapsed());
        assert!(matches!(error, OpenError::Unreachable(_)), "{error}");
        error.to_string()
    }
}

fn tls(authority: PathBuf, domain: &str) -> Option<TlsConfig> {
    Some(TlsConfig { domain: Some(domain.to_owned()), ca_file: Some(authority) })
}

async fn check(server: TlsServer) {
    let trusted = || server.files.path("authority");
    let store = Box::pin(IggyStore::open(server.config(tls(trusted(), NAME)))).await.unwrap();
    let topic = store.create_topic("secure", "orders", 1, &TopicSettings::default()).await.unwrap().topic;
    let appended = store.append(&topic.partition(0), batch_of(&[TestMessage::new(1, b"sealed")])).await.unwrap();
    assert_eq!(appended.base_offset, Some(0));
    assert_eq!(store.bounds(&topic.partition(0)).await.unwrap().end, 1);

    let stranger = Files::new();
    let untrusted = server.refusal(tls(stranger.path("authority"), NAME)).await;
    assert!(untrusted.contains("TLS") && untrusted.contains("authority"), "{untrusted}");
    let misnamed = server.refusal(tls(trusted(), "other.test")).await;
    assert!(misnamed.contains("not one for other.test"), "{misnamed}");
    let plain = server.refusal(None).await;
    assert!(plain.contains("TLS") || plain.contains("protocol 0.11"), "{plain}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_tls_is_reached_by_who_trusts_its_certificate_and_by_nobody_else() {
    check(TlsServer::door().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_server_with_tls_is_reached_by_who_trusts_its_certificate_and_by_nobody_else() {
    if let Some(server) = TlsServer::real() {
        check(server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_a_clear_failure_for_who_wants_it() {
    let files = Files::new();
    let case = Box::pin(Case::start(door(), Setup::default())).await.unwrap();
    let server = TlsServer { address: case.servers.addresses()[0], files, _case: Some(case), _servers: None };
    let error = server.refusal(tls(server.files.path("authority"), NAME)).await;
    assert!(error.contains("does not speak TLS"), "{error}");
}
