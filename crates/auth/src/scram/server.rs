//! The server's side.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::Denied;
use super::message::{ClientFirst, ClientLast};
use crate::prepare::prepared;
use crate::users::Users;
use crate::verifier::{Hash, Verifier};

/// One exchange with one client: its first message, then its last.
#[derive(Debug)]
pub struct ScramServer {
    hash: Hash,
    state: State,
}

#[derive(Debug)]
enum State {
    First,
    Last(Box<Waiting>),
    Over,
}

/// What is known between the two messages.
#[derive(Debug)]
struct Waiting {
    name: String,
    /// False when there is no such user; then `verifier` is made up.
    known: bool,
    verifier: Verifier,
    gs2_header: String,
    client_nonce: String,
    /// That of the client and ours.
    nonce: String,
    /// The two messages so far, as they are signed.
    messages: String,
}

/// What comes of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// This goes to the client, and its last message is expected.
    Challenge(Vec<u8>),
    /// This goes to the client, who is this user.
    Accepted {
        /// The server's proof.
        token: Vec<u8>,
        /// Name of the user.
        name: String,
    },
}

impl ScramServer {
    /// A new exchange.
    #[must_use]
    pub fn new(hash: Hash) -> Self {
        Self { hash, state: State::First }
    }

    /// Takes a message. `nonce` is random, printable and has no comma; it is used once.
    ///
    /// # Errors
    /// When the client is not let in; then the exchange is over. A user that does not exist is refused as late as a wrong
    /// password, and with the same messages before.
    pub fn step(&mut self, token: &[u8], users: &Users, nonce: &str) -> Result<Answer, Denied> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::First => {
                let (waiting, challenge) = self.first(token, users, nonce)?;
                self.state = State::Last(Box::new(waiting));
                Ok(Answer::Challenge(challenge))
            }
            State::Last(waiting) => last(*waiting, token),
            State::Over => Err(Denied::Over),
        }
    }

    fn first(&self, token: &[u8], users: &Users, nonce: &str) -> Result<(Waiting, Vec<u8>), Denied> {
        let first = ClientFirst::parse(token)?;
        if !first.authorization_id.is_empty() && first.authorization_id != first.name {
            return Err(Denied::AuthorizationId);
        }
        // A name without a prepared form is nobody's.
        let name = prepared(&first.name).unwrap_or(first.name);
        let (verifier, known) = users.scram(&name, self.hash).ok_or(Denied::Credentials)?;
        let nonce = format!("{}{nonce}", first.nonce);
        let challenge = format!("r={nonce},s={},i={}", BASE64.encode(verifier.salt()), verifier.iterations());
        let messages = format!("{},{challenge}", first.bare);
        let waiting =
            Waiting { name, known, verifier, gs2_header: first.gs2_header, client_nonce: first.nonce, nonce, messages };
        Ok((waiting, challenge.into_bytes()))
    }
}

fn last(waiting: Waiting, token: &[u8]) -> Result<Answer, Denied> {
    let Waiting { name, known, verifier, gs2_header, client_nonce, nonce, messages } = waiting;
    let last = ClientLast::parse(token)?;
    // librdkafka before 2.6.1 puts its own nonce before that of the server once more, which has it already. All of what the
    // server made up is still in it, so that an old message cannot be sent again.
    let repeated = last.nonce.strip_prefix(&client_nonce).is_some_and(|rest| rest == nonce);
    if !(last.nonce == nonce || repeated) || last.gs2_header != gs2_header.as_bytes() {
        return Err(Denied::Nonce);
    }
    let exchange = format!("{messages},{}", last.without_proof);
    // Both are computed for everybody.
    if !(verifier.proves(&last.proof, exchange.as_bytes()) & known) {
        return Err(Denied::Credentials);
    }
    let token = format!("v={}", BASE64.encode(verifier.signature(exchange.as_bytes())));
    Ok(Answer::Accepted { token: token.into_bytes(), name })
}
