//! The manifest: the last section of a snapshot, which lists its parts. Pure.
//!
//! ```text
//!  0               8              16       20      24
//! ┌───────────────┬───────────────┬────────┬───────┬───────────────┬──────────┬───────┬────────
//! │ epoch         │ newest        │ crc of │ 0     │ orders kept   │ order    │ 0     │ order
//! │               │ position      │ chain  │       │               │ files    │       │ files…
//! └───────────────┴───────────────┴────────┴───────┴───────────────┴──────────┴───────┴────────
//! each order file:  number u64, bytes u64, rows u64
//! ```
//!
//! Epoch, position and crc mark the end of the journal's chain after the last segment that the
//! snapshot covers: the next block must continue it.

use crate::journal::ChainMark;
use crate::journal::record::RecordError;
use crate::journal::record::field::{Fields, Reader};

/// Maximum number of order files of a snapshot. Once it is reached, the next fold writes all orders
/// into a new file.
pub(super) const ORDER_FILE_COUNT_MAX: usize = 32;

/// An order file of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OrderFile {
    /// The number of the snapshot that the file was written with.
    pub(super) number: u64,
    /// Length, in bytes.
    pub(super) bytes: u64,
    /// Number of orders, including forgotten ones.
    pub(super) rows: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Manifest {
    /// The point where the journal continues.
    pub(super) chain: ChainMark,
    /// Number of orders kept by the accounts.
    pub(super) orders_kept: u64,
    /// The files that hold the orders, oldest first.
    pub(super) order_files: Vec<OrderFile>,
}

impl Manifest {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields(out);
        fields.u64(self.chain.epoch);
        fields.u64(self.chain.position);
        fields.u32(self.chain.crc);
        fields.u32(0);
        fields.u64(self.orders_kept);
        fields.length(self.order_files.len());
        fields.u32(0);
        for file in &self.order_files {
            fields.u64(file.number);
            fields.u64(file.bytes);
            fields.u64(file.rows);
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::new(bytes);
        let epoch = reader.u64("epoch")?;
        let position = reader.u64("position")?;
        let crc = reader.u32("crc of the chain")?;
        reader.zeros(4, "zeros after the crc")?;
        let orders_kept = reader.u64("count of kept orders")?;
        let count = reader.valid("count of order files", |reader| {
            let count = reader.u32("count of order files")? as usize;
            Ok((count <= ORDER_FILE_COUNT_MAX).then_some(count))
        })?;
        reader.zeros(4, "zeros after the count")?;
        let mut order_files = Vec::with_capacity(count);
        for _ in 0..count {
            order_files.push(OrderFile {
                number: reader.u64("number of an order file")?,
                bytes: reader.u64("length of an order file")?,
                rows: reader.u64("count of orders")?,
            });
        }
        reader.end("end of the manifest")?;
        let chain = ChainMark { epoch, position, crc };
        Ok(Self { chain, orders_kept, order_files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_survives_a_round_trip_and_a_truncated_one_is_refused() {
        let file = OrderFile { number: 3, bytes: 4096, rows: 17 };
        let manifest = Manifest {
            chain: ChainMark { epoch: 2, position: 900, crc: 0xdead_beef },
            orders_kept: 12,
            order_files: vec![file, OrderFile { number: 5, ..file }],
        };
        let mut bytes = Vec::new();
        manifest.encode(&mut bytes);
        assert_eq!(Manifest::decode(&bytes), Ok(manifest));
        for length in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        bytes.push(0);
        assert!(Manifest::decode(&bytes).is_err());
    }
}
