//! What a snapshot consists of: the last section of its file. Pure.
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
//! Epoch, position and crc are where the journal's chain stands after the last segment that the
//! snapshot covers: the first block behind it must continue there.

use crate::journal::ChainMark;
use crate::journal::record::RecordError;
use crate::journal::record::field::{Fields, Reader};

/// At most so many order files belong to a snapshot: then all orders are written into a new one.
pub(super) const ORDER_FILE_COUNT_MAX: usize = 32;

/// An order file that a snapshot needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OrderFile {
    /// The snapshot that it was written with.
    pub(super) number: u64,
    /// Its length.
    pub(super) bytes: u64,
    /// How many orders are in it, forgotten ones too.
    pub(super) rows: u64,
}

/// What a snapshot says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Manifest {
    /// Where the journal goes on.
    pub(super) chain: ChainMark,
    /// How many orders its states hold.
    pub(super) orders_kept: u64,
    /// The files with those orders, oldest first.
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
    fn a_manifest_comes_back_and_half_of_one_does_not() {
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
