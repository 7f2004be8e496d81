//! Polymarket's hash of a book, which reveals lost updates.
//!
//! It is the SHA-1, in lower-case hexadecimal, of compact JSON with exactly this order of keys:
//!
//! ```text
//! {"market":M,"asset_id":T,"timestamp":MS,"hash":"","bids":[{"price":P,"size":S},…],"asks":[…],
//!  "min_order_size":S,"tick_size":P,"neg_risk":false,"last_trade_price":P}
//! ```
//!
//! In version 2 of the protocol `,"version":"v2"` follows the last trade's price.
//!
//! Every number is a string without trailing zeros, except that the last trade's price has at least
//! three decimals, and is empty for a book that never traded. SHA-1 is not a safeguard here: the
//! hash only has to reveal where our book differs from that of an honest venue.

use std::fmt::Write as _;
use std::io::Write as _;

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::feed::verify::{HashedBook, Verifier};
use paperbourse_core::ids::condition;
use paperbourse_core::market::book::Level;
use paperbourse_core::money::{
    MICROS_TEXT_BYTES_MAX, Price, put_micros, write_micros, write_micros_to_thousandths,
};

/// Length of a hash in hexadecimal digits.
pub const HASH_TEXT_BYTES: usize = 40;

/// A hasher of books that reuses one buffer.
#[derive(Default)]
pub struct BookHasher {
    text: Vec<u8>,
}

impl Verifier for BookHasher {
    /// Digests the text before the last trade's price only once, for all candidates.
    fn matching(
        &mut self,
        book: HashedBook<'_>,
        hash: &str,
        last_trade_prices: &[Option<Price>],
    ) -> Option<Option<Price>> {
        self.text.clear();
        write_head(&mut self.text, book);
        let mut head = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        head.update(&self.text);
        last_trade_prices.iter().copied().find(|&price| {
            self.text.clear();
            write_tail(&mut self.text, price, book.version);
            let mut digest = head.clone();
            digest.update(&self.text);
            is_hex_of(hash, digest.finish().as_ref())
        })
    }
}

impl BookHasher {
    /// Returns the hash of a book, in lower-case hexadecimal. `last_trade_price` is `None` for a
    /// market without trades.
    pub fn hash(&mut self, book: HashedBook<'_>, last_trade_price: Option<Price>) -> String {
        self.text.clear();
        write_head(&mut self.text, book);
        write_tail(&mut self.text, last_trade_price, book.version);
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, &self.text);
        let mut hash = String::with_capacity(HASH_TEXT_BYTES);
        for byte in digest.as_ref() {
            write!(hash, "{byte:02x}").expect("a string takes all text");
        }
        hash
    }
}

/// The panic message if a `write!` fails.
const INFALLIBLE: &str = "writing to a vector cannot fail";

fn write_head(out: &mut Vec<u8>, book: HashedBook<'_>) {
    write!(
        out,
        r#"{{"market":"{}","asset_id":"{}","timestamp":"{}","hash":"","bids":["#,
        condition::wide(book.market),
        book.token_id,
        book.at.millis()
    )
    .expect(INFALLIBLE);
    write_levels(out, book.ladder.bids());
    out.extend_from_slice(br#"],"asks":["#);
    write_levels(out, book.ladder.asks());
    out.extend_from_slice(br#"],"min_order_size":""#);
    write_micros(out, book.order_size_min.micros());
    out.extend_from_slice(br#"","tick_size":""#);
    write_micros(out, book.tick.micros());
    write!(out, r#"","neg_risk":{},"last_trade_price":""#, book.neg_risk).expect(INFALLIBLE);
}

/// Maximum length of a level's text, including the comma before it.
const LEVEL_TEXT_BYTES_MAX: usize =
    PRICE.len() + SIZE.len() + END.len() + 2 * MICROS_TEXT_BYTES_MAX + 1;

const PRICE: &[u8; 10] = br#"{"price":""#;
const SIZE: &[u8; 10] = br#"","size":""#;
const END: &[u8; 2] = br#""}"#;

/// Writes levels as JSON objects, separated by commas. Apart from the digest, most of the time of
/// computing a hash is spent here, so each level is assembled in a buffer of fixed size, which
/// needs no capacity checks.
pub fn write_levels(out: &mut Vec<u8>, levels: &[Level]) {
    out.reserve(levels.len() * LEVEL_TEXT_BYTES_MAX);
    let mut text = [b','; LEVEL_TEXT_BYTES_MAX];
    for (index, level) in levels.iter().enumerate() {
        let mut end = 1;
        end += put(&mut text, end, PRICE);
        end += put_number(&mut text, end, level.price.micros());
        end += put(&mut text, end, SIZE);
        end += put_number(&mut text, end, level.size.micros());
        end += put(&mut text, end, END);
        out.extend_from_slice(&text[usize::from(index == 0)..end]);
    }
}

fn put<const COUNT: usize>(text: &mut [u8], at: usize, piece: &[u8; COUNT]) -> usize {
    text[at..at + COUNT].copy_from_slice(piece);
    COUNT
}

fn put_number(text: &mut [u8], at: usize, micros: i64) -> usize {
    let room = text[at..].first_chunk_mut().expect("a level has room for its longest numbers");
    put_micros(room, micros)
}

fn write_tail(out: &mut Vec<u8>, last_trade_price: Option<Price>, version: Option<&str>) {
    if let Some(price) = last_trade_price {
        write_micros_to_thousandths(out, price.micros());
    }
    if let Some(version) = version {
        out.extend_from_slice(br#"","version":""#);
        out.extend_from_slice(version.as_bytes());
    }
    out.extend_from_slice(br#""}"#);
}

fn is_hex_of(text: &str, digest: &[u8]) -> bool {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    text.len() == HASH_TEXT_BYTES
        && digest.len() * 2 == HASH_TEXT_BYTES
        && text.as_bytes().chunks_exact(2).zip(digest).all(|(pair, &byte)| {
            digit(pair[0]) == Some(u32::from(byte >> 4))
                && digit(pair[1]) == Some(u32::from(byte & 15))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use paperbourse_core::ids::Timestamp;
    use paperbourse_core::market::book::Ladder;
    use paperbourse_core::money::Shares;

    fn ladder() -> Ladder {
        let level = |price: i64, size: i64| Level {
            price: Price::from_micros(price),
            size: Shares::from_micros(size),
        };
        Ladder::from_levels(
            vec![level(100_000, 6_390_000), level(450_000, 25_000_000)],
            vec![level(500_000, 7_000_000)],
        )
        .unwrap()
    }

    fn book(ladder: &Ladder) -> HashedBook<'_> {
        HashedBook {
            market: "0xab",
            token_id: "12",
            at: Timestamp::from_millis(1_700_000_000_123),
            ladder,
            order_size_min: Shares::from_micros(5_000_000),
            tick: Price::from_micros(10_000),
            neg_risk: true,
            version: None,
        }
    }

    #[test]
    fn the_hashed_text_matches_the_venues() {
        for (last_trade_price, tail) in [
            (None, ""),
            (Some(420_000), "0.420"),
            (Some(5_000), "0.005"),
            (Some(1_000_000), "1.000"),
            (Some(431_200), "0.4312"),
        ] {
            let ladder = ladder();
            let mut text = Vec::new();
            write_head(&mut text, book(&ladder));
            write_tail(&mut text, last_trade_price.map(Price::from_micros), None);
            let expected = concat!(
                r#"{"market":"0xab","asset_id":"12","timestamp":"1700000000123","hash":"","#,
                r#""bids":[{"price":"0.1","size":"6.39"},{"price":"0.45","size":"25"}],"#,
                r#""asks":[{"price":"0.5","size":"7"}],"min_order_size":"5","tick_size":"0.01","#,
                r#""neg_risk":true,"last_trade_price":""#
            );
            assert_eq!(String::from_utf8(text).unwrap(), format!("{expected}{tail}\"}}"));
        }
    }

    #[test]
    fn a_book_of_version_2_has_a_wide_name_and_its_version_at_the_end() {
        let ladder = ladder();
        let narrow = format!("0x{}", "ab".repeat(31));
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        write_head(&mut head, HashedBook { market: &narrow, ..book(&ladder) });
        write_tail(&mut tail, Some(Price::from_micros(600_000)), Some("v2"));
        let head = String::from_utf8(head).unwrap();
        assert!(
            head.starts_with(&format!(r#"{{"market":"{narrow}00","asset_id":"12","#)),
            "{head}"
        );
        assert_eq!(String::from_utf8(tail).unwrap(), r#"0.600","version":"v2"}"#);
    }

    #[test]
    fn the_price_that_yields_the_hash_is_found() {
        // Computed with another program from the text above.
        let (traded, never_traded) = (
            "9cfb1ae66fd3511fcc8fe7ba84d0f715d403d6ce",
            "289fcf44dbe9d86339480e617d56a0ecec634315",
        );
        let ladder = ladder();
        let mut hasher = BookHasher::default();
        let price = |micros| Some(Price::from_micros(micros));
        for (hash, candidates, expected) in [
            (traded, vec![price(420_000)], Some(price(420_000))),
            (traded, vec![None, price(410_000), price(420_000)], Some(price(420_000))),
            (traded, vec![None, price(410_000)], None),
            (never_traded, vec![None], Some(None)),
            (&traded[1..], vec![price(420_000)], None),
            ("", vec![None], None),
        ] {
            assert_eq!(hasher.matching(book(&ladder), hash, &candidates), expected);
        }
        assert_eq!(hasher.hash(book(&ladder), price(420_000)), traded);
        assert_eq!(hasher.hash(book(&ladder), None), never_traded);
    }
}
