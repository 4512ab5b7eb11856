//! What stands for users that do not exist. Whoever sees a challenge, the password of another user or the time that a check
//! takes cannot tell from it whether there is such a user.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;

use crate::verifier::{Hash, Verifier};

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;

/// Most forms of verifiers that are told apart. Passed: the rest is not imitated.
const FORMS_MAX: usize = 64;

/// Bits of the number that Kafka's clients make a salt of, and digits that it is written with.
const KAFKA_SALT_BITS: u32 = 130;
const KAFKA_DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Fewest and most digits of such a number; fewer come once in 100 million times.
const KAFKA_SALT_DIGITS: std::ops::RangeInclusive<usize> = 21..=26;

/// What made-up verifiers are made of. Not printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret([u8; SECRET_BYTES]);

/// What of a verifier a stranger is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Form {
    iterations: NonZeroU32,
    salt: Salt,
}

/// What a salt looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Salt {
    /// So many random bytes.
    Bytes(usize),
    /// A random number with Kafka's digits.
    Kafka,
}

/// The verifiers of users that do not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decoys {
    secret: Secret,
    /// The forms that verifiers of SHA-256 and SHA-512 have.
    sha256: BTreeSet<Form>,
    sha512: BTreeSet<Form>,
}

impl Decoys {
    /// Those that look like `verifiers`.
    pub(crate) fn like<'a>(secret: Secret, verifiers: impl Iterator<Item = &'a Verifier>) -> Self {
        let mut decoys = Self { secret, ..Self::default() };
        for verifier in verifiers {
            let forms = match verifier.hash() {
                Hash::Sha256 => &mut decoys.sha256,
                Hash::Sha512 => &mut decoys.sha512,
            };
            if forms.len() < FORMS_MAX {
                forms.insert(Form::of(verifier));
            }
        }
        decoys
    }

    /// The verifier of a name that nobody has: the same each time, for as long as secret and forms are the same. `None` where
    /// nobody has one of this hash.
    pub(crate) fn verifier(&self, name: &str, hash: Hash) -> Option<Verifier> {
        let forms = match hash {
            Hash::Sha256 => &self.sha256,
            Hash::Sha512 => &self.sha512,
        };
        let of = |what: &str, number: u8| {
            let context = [what.as_bytes(), hash.mechanism().as_bytes(), &[0, number], name.as_bytes()];
            hash.hmac(&self.secret.0, &context.concat())
        };
        // The highest bid has it: another form in the file changes few names.
        let form = forms.iter().max_by_key(|form| of(&format!("form {form:?}"), 0))?;
        let salt = match form.salt {
            Salt::Bytes(bytes) => (0..=u8::MAX).flat_map(|number| of("salt", number)).take(bytes).collect(),
            Salt::Kafka => kafka_salt(&of("salt", 0)),
        };
        // Digests that nobody knows what they are of.
        Verifier::made_up(hash, form.iterations, salt, [of("stored", 0), of("server", 0)])
    }
}

impl Form {
    fn of(verifier: &Verifier) -> Self {
        let salt = verifier.salt();
        let digits = salt.iter().all(|byte| KAFKA_DIGITS.contains(byte));
        let is_kafka = digits && KAFKA_SALT_DIGITS.contains(&salt.len()) && salt.first() != Some(&b'0');
        let salt = if is_kafka { Salt::Kafka } else { Salt::Bytes(salt.len()) };
        Self { iterations: verifier.counted(), salt }
    }
}

/// A number of 130 bits as Java writes it with the radix 36 (Kafka: `ScramFormatter.secureRandomBytes`).
fn kafka_salt(random: &[u8]) -> Vec<u8> {
    const RADIX: u32 = 36;
    let bytes = KAFKA_SALT_BITS.div_ceil(8);
    let mut number: Vec<u32> = random.iter().take(bytes as usize).map(|byte| u32::from(*byte)).collect();
    if let Some(first) = number.first_mut() {
        *first &= (1 << (KAFKA_SALT_BITS + 8 - 8 * bytes)) - 1;
    }
    let mut digits = Vec::new();
    while number.iter().any(|byte| *byte != 0) {
        let mut rest = 0;
        for byte in &mut number {
            let value = (rest << 8) | *byte;
            (*byte, rest) = (value / RADIX, value % RADIX);
        }
        digits.extend(KAFKA_DIGITS.get(rest as usize));
    }
    digits.reverse();
    digits
}

impl Secret {
    /// One that somebody made.
    pub(crate) fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// One that follows from all that is kept of users: no one of them knows it, if there are several.
    pub(crate) fn of_all<'a>(users: impl Iterator<Item = (&'a str, &'a Verifier)>) -> Self {
        let of = |(name, verifier): (&str, &Verifier)| {
            Hash::Sha256.hmac(verifier.secret(), &[verifier.hash().mechanism(), ":", name].concat().into_bytes())
        };
        let mut keys: Vec<Vec<u8>> = users.map(of).collect();
        keys.sort_unstable();
        let mut secret = [0; SECRET_BYTES];
        secret.iter_mut().zip(Hash::Sha256.digest(&keys.concat())).for_each(|(to, from)| *to = from);
        Self(secret)
    }
}

impl Default for Secret {
    fn default() -> Self {
        Self([0; SECRET_BYTES])
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verifier(salt: &[u8], iterations: u32) -> Verifier {
        Verifier::derive(Hash::Sha512, "secret", salt, iterations).unwrap()
    }

    fn decoys(verifiers: &[Verifier]) -> Decoys {
        Decoys::like(Secret::new([7; SECRET_BYTES]), verifiers.iter())
    }

    fn forms(decoys: &Decoys) -> BTreeSet<Form> {
        let of = |number| Form::of(&decoys.verifier(&format!("nobody-{number}"), Hash::Sha512).unwrap());
        (0..200).map(of).collect()
    }

    #[test]
    fn every_form_that_there_is_may_be_that_of_nobody_and_no_other() {
        let real = [
            verifier(b"0123456789abcdef", 4_096),
            verifier(&[200; 255], 4_096),
            verifier(b"1rbq2d9dyyyf3j2k0n5ifvpfoj", 8_192),
        ];
        let mixed = decoys(&real);
        assert_eq!(forms(&mixed), real.iter().map(Form::of).collect());
        assert_eq!(mixed.verifier("nobody", Hash::Sha256), None);
    }

    #[test]
    fn a_decoy_is_the_same_each_time_and_has_no_password() {
        let decoys = decoys(&[verifier(b"0123456789abcdef", 4_096)]);
        let of = |name| decoys.verifier(name, Hash::Sha512).unwrap();
        assert_eq!(of("nobody"), of("nobody"));
        assert_ne!(of("nobody").salt(), of("somebody").salt());
        assert_eq!((of("nobody").salt().len(), of("nobody").iterations()), (16, 4_096));
        assert!(!of("nobody").matches("secret"));
        let other = Decoys { secret: Secret::new([8; SECRET_BYTES]), ..decoys.clone() };
        assert_ne!(other.verifier("nobody", Hash::Sha512).unwrap().salt(), of("nobody").salt());
    }

    #[test]
    fn salts_of_kafka_are_numbers_of_130_bits() {
        assert_eq!(kafka_salt(&[0xff; 17]), b"1omfro7zwmumr3umxudzyj6scf");
        let mut ten = [0; 17];
        ten[16] = 36;
        assert_eq!(kafka_salt(&ten), b"10");
        let kafka = decoys(&[verifier(b"1rbq2d9dyyyf3j2k0n5ifvpfoj", 8_192)]);
        for number in 0..200 {
            let decoy = kafka.verifier(&number.to_string(), Hash::Sha512).unwrap();
            assert_eq!(Form::of(&decoy).salt, Salt::Kafka, "{:?}", decoy.salt());
        }
    }

    #[test]
    fn the_secret_of_all_changes_with_each_of_them() {
        let (one, two) = (verifier(b"salt", 4_096), verifier(b"other", 4_096));
        let of = |users: &[(&'static str, &Verifier)]| Secret::of_all(users.iter().copied());
        assert_eq!(of(&[("a", &one), ("b", &two)]), of(&[("b", &two), ("a", &one)]));
        for other in [&[("a", &one)][..], &[("a", &one), ("b", &one)], &[("a", &one), ("c", &two)]] {
            assert_ne!(of(&[("a", &one), ("b", &two)]), of(other));
        }
        assert_eq!(format!("{:?}", of(&[])), "Secret");
    }
}
