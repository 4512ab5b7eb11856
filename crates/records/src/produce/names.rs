//! Finding two headers of one name.

use std::collections::HashSet;

/// Names that are compared one by one; further ones go into a set, which takes memory.
const INLINE: usize = 16;

/// The names of one record's headers so far. Takes no memory for up to 16 headers.
pub(super) struct Names<'a> {
    marks: [u64; INLINE],
    names: [&'a [u8]; INLINE],
    count: usize,
    more: Option<HashSet<&'a [u8]>>,
}

impl<'a> Names<'a> {
    pub(super) fn new() -> Self {
        Self { marks: [0; INLINE], names: [&[]; INLINE], count: 0, more: None }
    }

    /// Adds a name; false when it was there already.
    #[inline]
    pub(super) fn add(&mut self, name: &'a [u8]) -> bool {
        let mark = mark(name);
        for (&seen, &other) in self.marks.iter().zip(&self.names).take(self.count) {
            if seen == mark && other == name {
                return false;
            }
        }
        if let (Some(slot), Some(seen)) = (self.names.get_mut(self.count), self.marks.get_mut(self.count)) {
            *slot = name;
            *seen = mark;
            self.count += 1;
            return true;
        }
        self.more.get_or_insert_default().insert(name)
    }
}

/// Tells most names apart without comparing their bytes.
#[inline]
fn mark(name: &[u8]) -> u64 {
    let len = name.len() as u64;
    if let (Some(first), Some(last)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        return u64::from_le_bytes(*first).rotate_left(23) ^ u64::from_le_bytes(*last) ^ len;
    }
    name.iter().fold(len, |mark, &byte| mark << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_name_is_found_at_any_distance() {
        let names: Vec<String> = (0..40).map(|index| format!("name-{index}")).collect();
        for again in 0..names.len() {
            let mut seen = Names::new();
            assert!(names.iter().all(|name| seen.add(name.as_bytes())));
            assert!(!seen.add(names[again].as_bytes()), "{again}");
        }
    }

    #[test]
    fn the_empty_name_counts_like_any_other() {
        let mut seen = Names::new();
        assert!(seen.add(b""));
        assert!(seen.add(b"\0"));
        assert!(!seen.add(b""));
    }

    #[test]
    fn names_of_one_mark_are_still_told_apart() {
        // Equal ends and equal length: the marks are equal, the middles are not.
        let (one, other) = (&b"12345678-a-12345678"[..], &b"12345678-b-12345678"[..]);
        assert_eq!(mark(one), mark(other));
        let mut seen = Names::new();
        assert!(seen.add(one));
        assert!(seen.add(other));
        assert!(!seen.add(other));
    }
}
