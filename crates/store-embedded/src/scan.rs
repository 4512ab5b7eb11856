//! Walks over the entries of a segment, verifying each, and finds the next whole entry behind damage.

use std::io;

use crate::format::{ENTRY_HEADER_BYTES, EntryHeader, entry_is_sound, marker};
use crate::fs::File;
use crate::index::Place;

/// Bytes read at once.
const CHUNK_BYTES: usize = 1024 * 1024;

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A whole entry that starts at `position`.
    Entry {
        /// Its header.
        header: EntryHeader,
        /// Where it starts.
        position: u64,
    },
    /// Bytes that are not the expected entry.
    Bad(Place),
    /// Nothing more.
    End,
}

/// Reads entries one after the other.
pub(crate) struct Scanner<'a> {
    file: &'a dyn File,
    nonce: u32,
    limit: u64,
    next: Place,
    buffer: Vec<u8>,
    buffer_at: u64,
}

impl<'a> Scanner<'a> {
    /// From the entry at `from` to position `limit`.
    pub(crate) fn new(file: &'a dyn File, nonce: u32, from: Place, limit: u64) -> Self {
        Self { file, nonce, limit, next: from, buffer: Vec::new(), buffer_at: from.position }
    }

    /// Where the next entry is expected.
    pub(crate) fn place(&self) -> Place {
        self.next
    }

    /// Continues there.
    pub(crate) fn skip_to(&mut self, place: Place) {
        self.next = place;
    }

    /// Verifies the next entry and steps over it. After [`Step::Bad`] the place is unchanged.
    pub(crate) fn step(&mut self) -> io::Result<Step> {
        let place = self.next;
        if place.position >= self.limit {
            return Ok(Step::End);
        }
        match self.sound_entry(place.position)? {
            Some(header) if header.base_offset == place.offset => {
                self.next = Place {
                    offset: header.end_offset(),
                    position: place.position.saturating_add(header.entry_bytes() as u64),
                };
                Ok(Step::Entry { header, position: place.position })
            }
            _ => Ok(Step::Bad(place)),
        }
    }

    /// The frames of the entry that [`Scanner::step`] just answered.
    pub(crate) fn frames(&self, header: &EntryHeader, position: u64) -> &[u8] {
        let entry = self.window(position, header.entry_bytes()).unwrap_or_default();
        entry.get(ENTRY_HEADER_BYTES..).unwrap_or_default()
    }

    /// The next whole entry behind the current place whose offset is larger than the expected one.
    pub(crate) fn find_next(&mut self) -> io::Result<Option<Place>> {
        let wanted = marker(self.nonce);
        let mut position = self.next.position.saturating_add(1);
        while position.saturating_add(ENTRY_HEADER_BYTES as u64) <= self.limit {
            let left = usize::try_from(self.limit - position).unwrap_or(usize::MAX);
            let searched = left.min(CHUNK_BYTES);
            if !self.fill(position, searched)? {
                return Ok(None);
            }
            let window = self.window(position, searched).unwrap_or_default();
            let Some(found) = window.windows(wanted.len()).position(|bytes| bytes == wanted) else {
                position = position.saturating_add((searched - (wanted.len() - 1)) as u64);
                continue;
            };
            position = position.saturating_add(found as u64);
            match self.sound_entry(position)? {
                Some(header) if header.base_offset > self.next.offset => {
                    return Ok(Some(Place { offset: header.base_offset, position }));
                }
                _ => position = position.saturating_add(1),
            }
        }
        Ok(None)
    }

    /// True when all bytes from the current place on are zero, as after a crash that kept the size but no contents.
    pub(crate) fn rest_is_zero(&mut self) -> io::Result<bool> {
        let mut position = self.next.position;
        while position < self.limit {
            let searched = usize::try_from(self.limit - position).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            if !self.fill(position, searched)? {
                return Ok(false);
            }
            if self.window(position, searched).unwrap_or_default().iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            position = position.saturating_add(searched as u64);
        }
        Ok(true)
    }

    fn sound_entry(&mut self, position: u64) -> io::Result<Option<EntryHeader>> {
        if !self.fill(position, ENTRY_HEADER_BYTES)? {
            return Ok(None);
        }
        let head = self.window(position, ENTRY_HEADER_BYTES).unwrap_or_default();
        let Some(header) = EntryHeader::peek(head, self.nonce) else { return Ok(None) };
        if !self.fill(position, header.entry_bytes())? {
            return Ok(None);
        }
        let entry = self.window(position, header.entry_bytes()).unwrap_or_default();
        Ok(entry_is_sound(entry).then_some(header))
    }

    fn window(&self, position: u64, bytes: usize) -> Option<&[u8]> {
        let from = usize::try_from(position.checked_sub(self.buffer_at)?).ok()?;
        self.buffer.get(from..from.checked_add(bytes)?)
    }

    /// Makes the bytes available; false when the file ends before.
    fn fill(&mut self, position: u64, bytes: usize) -> io::Result<bool> {
        if self.window(position, bytes).is_some() {
            return Ok(true);
        }
        let left = usize::try_from(self.limit.saturating_sub(position)).unwrap_or(usize::MAX);
        if left < bytes {
            return Ok(false);
        }
        self.buffer.resize(bytes.max(CHUNK_BYTES.min(left)), 0);
        self.buffer_at = position;
        let read = self.file.read_at(&mut self.buffer, position)?;
        self.buffer.truncate(read);
        Ok(read >= bytes)
    }
}
