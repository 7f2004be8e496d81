//! Any bytes decode to a record or an error, and each record has a single encoding.
//!
//! A decoded record must encode to the same bytes. So no two byte strings are the same record, and
//! a checksum of the bytes is a checksum of the meaning.

use paperbourse::journal::record;

pub(crate) fn run(bytes: &[u8]) {
    if let Ok((header, events)) = record::decode(bytes) {
        let mut again = Vec::with_capacity(bytes.len());
        record::encode(header, &events, &mut again);
        assert_eq!(again, bytes, "{events:?}");
    }
}
