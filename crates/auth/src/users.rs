//! The file of users: one line for each user and hash, `name:SCRAM-SHA-512$iterations:salt$StoredKey:ServerKey`. Empty
//! lines and lines that begin with `#` are for people, and stay where they are when the file is changed. One of those is not:
//! `#decoys:` with a secret behind it, from which names that nobody has get what a login is shown.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

pub use crate::decoys::SECRET_BYTES;
use crate::decoys::{Decoys, Secret};
use crate::prepare::{self, Unusable};
use crate::verifier::{BadVerifier, Hash, Verifier};

/// Most users of a file. Passed: the file is refused.
pub const USERS_MAX: usize = 100_000;

/// Before the secret of a file, in base64.
const SECRET_LINE: &str = "#decoys:";

/// What is salted when there is nothing to check: it takes as long as another salt.
const NO_SALT: &[u8] = b"0123456789abcdef";

/// What is between a name and its verifier. No verifier holds it, so a name may hold colons.
const SEPARATOR: &str = ":SCRAM-SHA-";

/// Users and what is kept of their passwords. Empty by default: then nobody can log in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    by_name: HashMap<String, User>,
    /// The secret that the file has, if it has one.
    secret: Option<Secret>,
    decoys: Decoys,
    /// Most iterations that a check of a PLAIN password may need, of SHA-256 and of SHA-512.
    work: Work,
}

/// Iterations of SHA-256 and of SHA-512.
type Work = [u32; 2];

/// The verifiers of one user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    sha256: Option<Verifier>,
    sha512: Option<Verifier>,
}

impl User {
    /// The verifier of that hash.
    #[must_use]
    pub fn verifier(&self, hash: Hash) -> Option<&Verifier> {
        match hash {
            Hash::Sha256 => self.sha256.as_ref(),
            Hash::Sha512 => self.sha512.as_ref(),
        }
    }

    /// What a PLAIN password is checked against.
    fn for_plain(&self) -> Option<&Verifier> {
        self.sha512.as_ref().or(self.sha256.as_ref())
    }

    fn place(&mut self, hash: Hash) -> &mut Option<Verifier> {
        match hash {
            Hash::Sha256 => &mut self.sha256,
            Hash::Sha512 => &mut self.sha512,
        }
    }
}

/// What a line of the file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    ForPeople,
    Entry { name: &'a str, verifier: &'a str },
    Neither,
}

/// Why a file of users cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// A line is none of the forms.
    #[error("line {line} must look like NAME:SCRAM-SHA-512$4096:SALT$STOREDKEY:SERVERKEY; `milena users add` makes it")]
    Form {
        /// Number of the line, from 1.
        line: usize,
    },
    /// A verifier is out of range.
    #[error("line {line}: {source}")]
    Verifier {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        source: BadVerifier,
    },
    /// A name cannot be used.
    #[error("line {line}: the name cannot be used, {source}")]
    Name {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        source: Unusable,
    },
    /// A user has two verifiers of one hash.
    #[error("line {line}: this user has a {mechanism} entry already")]
    Twice {
        /// Number of the line, from 1.
        line: usize,
        /// Its mechanism.
        mechanism: &'static str,
    },
    /// The secret is none.
    #[error("line {line} must look like #decoys: and {SECRET_BYTES} bytes in base64; without such a line one is made")]
    Secret {
        /// Number of the line, from 1.
        line: usize,
    },
    /// There are too many.
    #[error("more than {USERS_MAX} users")]
    TooMany,
}

/// Checks a name that is to be in the file.
///
/// # Errors
/// When clients could not use it, or the file could not hold it.
pub fn check_name(name: &str) -> Result<(), Unusable> {
    let fits = !name.starts_with('#') && name.trim() == name && !name.contains(SEPARATOR);
    prepare::check(name).and(if fits { Ok(()) } else { Err(Unusable::Forbidden) })
}

impl Users {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, UsersError> {
        let mut users = Self::default();
        for (line, content) in (1..).zip(text.lines()) {
            if let Some(secret) = content.strip_prefix(SECRET_LINE) {
                let bytes = BASE64.decode(secret.trim_end()).ok().and_then(|bytes| bytes.try_into().ok());
                users.secret = Some(Secret::new(bytes.ok_or(UsersError::Secret { line })?));
                continue;
            }
            match read_line(content) {
                Line::ForPeople => {}
                Line::Neither => return Err(UsersError::Form { line }),
                Line::Entry { name, verifier } => {
                    check_name(name).map_err(|source| UsersError::Name { line, source })?;
                    let verifier = verifier.parse().map_err(|source| UsersError::Verifier { line, source })?;
                    users.add(name, verifier, line)?;
                }
            }
        }
        Ok(users.sealed())
    }

    /// A single user, whose password is known in both hashes.
    #[must_use]
    pub fn single(name: &str, verifiers: [Verifier; 2]) -> Self {
        let mut users = Self::default();
        for verifier in verifiers {
            users.put(name, verifier);
        }
        users.sealed()
    }

    fn add(&mut self, name: &str, verifier: Verifier, line: usize) -> Result<(), UsersError> {
        let hash = verifier.hash();
        if self.by_name.get(name).is_some_and(|user| user.verifier(hash).is_some()) {
            return Err(UsersError::Twice { line, mechanism: hash.mechanism() });
        }
        if self.by_name.len() >= USERS_MAX && !self.by_name.contains_key(name) {
            return Err(UsersError::TooMany);
        }
        self.put(name, verifier);
        Ok(())
    }

    fn put(&mut self, name: &str, verifier: Verifier) {
        let hash = verifier.hash();
        *self.by_name.entry(name.to_owned()).or_default().place(hash) = Some(verifier);
    }

    /// These users, and those of `other` whose names are not among them.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        for (name, user) in other.by_name {
            self.by_name.entry(name).or_insert(user);
        }
        self.secret = self.secret.or(other.secret);
        self.sealed()
    }

    /// With what follows from all users together.
    fn sealed(mut self) -> Self {
        let verifiers = self
            .iter()
            .flat_map(|(name, user)| Hash::ALL.into_iter().filter_map(move |hash| Some((name, user.verifier(hash)?))));
        let secret = self.secret.clone().unwrap_or_else(|| Secret::of_all(verifiers.clone()));
        let decoys = Decoys::like(secret, verifiers.map(|(_, verifier)| verifier));
        let mut work = Work::default();
        for verifier in self.iter().filter_map(|(_, user)| user.for_plain()) {
            for (most, own) in work.iter_mut().zip(work_of(Some(verifier))) {
                *most = own.max(*most);
            }
        }
        (self.decoys, self.work) = (decoys, work);
        self
    }

    /// The user of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&User> {
        self.by_name.get(name)
    }

    /// All users, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &User)> + Clone {
        self.by_name.iter().map(|(name, user)| (name.as_str(), user))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// True when nobody can log in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The verifier of a user for SCRAM, and whether there is such a user. One that does not exist gets a verifier that
    /// looks like the others and that no password matches; `None` only where no user has one of this hash.
    pub(crate) fn scram(&self, name: &str, hash: Hash) -> Option<(Verifier, bool)> {
        // Made for everybody, as it takes time.
        let decoy = self.decoys.verifier(name, hash)?;
        match self.get(name).and_then(|user| user.verifier(hash)) {
            Some(verifier) => Some((verifier.clone(), true)),
            None => Some((decoy, false)),
        }
    }

    /// Checks name and password, both prepared. It is the same work for each name, whatever its iterations and its hash, and
    /// for one that does not exist.
    #[must_use]
    pub fn is(&self, name: &str, password: &str) -> bool {
        let found = self.get(name).and_then(User::for_plain);
        let right = found.is_some_and(|verifier| verifier.matches(password));
        for (hash, iterations) in Hash::ALL.into_iter().zip(self.rest(found)) {
            if let Some(iterations) = NonZeroU32::new(iterations) {
                std::hint::black_box(hash.salted(password, NO_SALT, iterations));
            }
        }
        right
    }

    /// What is left of the work when this is checked.
    fn rest(&self, verifier: Option<&Verifier>) -> Work {
        let ([most_256, most_512], [own_256, own_512]) = (self.work, work_of(verifier));
        [most_256.saturating_sub(own_256), most_512.saturating_sub(own_512)]
    }
}

/// The work of checking a password.
fn work_of(verifier: Option<&Verifier>) -> Work {
    let of = |hash| verifier.filter(|verifier| verifier.hash() == hash).map_or(0, Verifier::iterations);
    Hash::ALL.map(of)
}

fn read_line(line: &str) -> Line<'_> {
    if line.trim().is_empty() || line.starts_with('#') {
        return Line::ForPeople;
    }
    let split = line.rfind(SEPARATOR).and_then(|at| Some((line.get(..at)?, line.get(at + 1..)?)));
    split.map_or(Line::Neither, |(name, verifier)| Line::Entry { name, verifier: verifier.trim_end() })
}

/// A change of one user.
#[derive(Debug, Clone, Copy, Default)]
pub struct Edit<'a> {
    /// Hashes whose verifiers go.
    pub without: &'a [Hash],
    /// What takes the place of the verifiers of the same hashes.
    pub with: &'a [Verifier],
}

/// The text of a file with changes of these users. The time it takes does not grow with the product of both.
#[must_use]
pub fn changed(text: &str, edits: &BTreeMap<&str, Edit<'_>>) -> String {
    let mut changed = String::with_capacity(text.len());
    let mut line = |line: &str| changed.extend([line, "\n"]);
    let mut placed: HashSet<(&str, Hash)> = HashSet::new();
    for before in text.lines() {
        let edit = match read_line(before) {
            Line::Entry { name, verifier } => edits.get_key_value(name).map(|(name, edit)| (*name, edit, verifier)),
            Line::ForPeople | Line::Neither => None,
        };
        let Some((name, edit, verifier)) = edit else {
            line(before);
            continue;
        };
        let is = |hash: Hash| verifier.starts_with(hash.mechanism());
        match edit.with.iter().find(|new| is(new.hash()) && !placed.contains(&(name, new.hash()))) {
            Some(new) => {
                placed.insert((name, new.hash()));
                line(&format!("{name}:{new}"));
            }
            None if edit.without.iter().any(|hash| is(*hash)) => {}
            None => line(before),
        }
    }
    for (name, edit) in edits {
        let left = edit.with.iter().filter(|new| !placed.contains(&(*name, new.hash())));
        left.for_each(|new| line(&format!("{name}:{new}")));
    }
    changed
}

/// The text of a file with these verifiers of a user in place of those of the same hashes it had.
#[must_use]
pub fn with(text: &str, name: &str, verifiers: &[Verifier]) -> String {
    changed(text, &BTreeMap::from([(name, Edit { with: verifiers, ..Edit::default() })]))
}

/// The text of a file without a user, or without its verifier of one hash.
#[must_use]
pub fn without(text: &str, name: &str, hash: Option<Hash>) -> String {
    let hashes = hash.map_or(Hash::ALL.to_vec(), |hash| vec![hash]);
    changed(text, &BTreeMap::from([(name, Edit { without: &hashes, ..Edit::default() })]))
}

/// The text of a file with a secret of its own, which is `random` if it has none yet.
#[must_use]
pub fn with_secret(text: &str, random: [u8; SECRET_BYTES]) -> String {
    if text.lines().any(|line| line.starts_with(SECRET_LINE)) {
        return text.to_owned();
    }
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{end}{SECRET_LINE}{}\n", BASE64.encode(random))
}

#[cfg(test)]
mod tests;
