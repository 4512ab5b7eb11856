//! Test servers over a real Iggy server.

use std::sync::Arc;

use milena_store::Store;
use milena_store_iggy::url::IggyUrl;
use milena_store_iggy::{IggyConfig, IggyStore};

/// The server that `TEST_IGGY=iggy://user:password@host:port` names, with a name of our own for the streams of one
/// test; `None` when the variable is not set.
pub(crate) fn over_iggy() -> Option<IggyConfig> {
    let url = IggyUrl::parse(&std::env::var("TEST_IGGY").ok()?).expect("TEST_IGGY is an address");
    let (user, password) = (url.user.expect("a user"), url.password.expect("a password"));
    let mut config = IggyConfig::new("", &user, password);
    config.servers = url.servers;
    let name = uuid::Uuid::new_v4().simple().to_string();
    config.state_stream = format!("test-{name}");
    // Tests run side by side, and the name of an access token must be one gateway's alone.
    config.instance = name.as_bytes().iter().fold(0u16, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    (config.append_connections, config.read_connections) = (2, 2);
    Some(config)
}

pub(crate) async fn open(config: IggyConfig) -> Arc<dyn Store> {
    Arc::new(Box::pin(IggyStore::open(config)).await.expect("a store on the Iggy server"))
}
