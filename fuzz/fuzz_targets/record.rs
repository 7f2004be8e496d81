//! Any bytes are a record or an error, and what is a record has one way to be written.
//!
//! What decodes is encoded again and must be the same bytes: no two byte strings are one record, so
//! a checksum over the bytes is a checksum over the meaning.

#![no_main]

use libfuzzer_sys::fuzz_target;
use paperbourse::journal::record;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, events)) = record::decode(bytes) {
        let mut again = Vec::with_capacity(bytes.len());
        record::encode(header, &events, &mut again);
        assert_eq!(again, bytes, "{events:?}");
    }
});
