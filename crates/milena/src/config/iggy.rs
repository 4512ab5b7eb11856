//! The keys of section `iggy`: an Iggy server as the store.

#[cfg(not(feature = "iggy"))]
use super::keys::Key;
#[cfg(feature = "iggy")]
pub(super) use keys::IGGY;
#[cfg(feature = "iggy")]
pub(crate) use keys::IggySettings;

/// None in a build without the feature.
#[cfg(not(feature = "iggy"))]
pub(super) const IGGY: &[Key] = &[];

#[cfg(feature = "iggy")]
mod keys;
