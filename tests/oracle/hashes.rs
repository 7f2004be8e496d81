//! The hashes of all books, computed from the answers as the venue's own clients do.

use std::path::Path;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::Value;

use super::{Exchange, PAGE_LENGTH, recordings};

/// The SHA-1 of the venue's compact JSON: these fields in this order, and an empty hash.
fn hash_of(book: &Value) -> String {
    let levels = |side: &str| {
        let levels = book[side].as_array().unwrap().iter();
        let texts =
            levels.map(|it| format!(r#"{{"price":{},"size":{}}}"#, it["price"], it["size"]));
        texts.collect::<Vec<_>>().join(",")
    };
    let field = |name: &str| format!(r#""{name}":{}"#, book[name]);
    let fields = [
        field("market"),
        field("asset_id"),
        field("timestamp"),
        r#""hash":"""#.to_owned(),
        format!(r#""bids":[{}]"#, levels("bids")),
        format!(r#""asks":[{}]"#, levels("asks")),
        field("min_order_size"),
        field("tick_size"),
        field("neg_risk"),
        field("last_trade_price"),
    ];
    let text = format!("{{{}}}", fields.join(","));
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    digest.as_ref().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Computes every hash, and returns the number of books and of those with a hash.
#[track_caller]
fn check(recording: &Path) -> (usize, usize) {
    let mut exchange = Exchange::open(recording, "1000");
    let (mut books, mut hashed) = (0, 0);
    for offset in (0..).step_by(PAGE_LENGTH) {
        let page = exchange.read(&format!("/v1/markets?limit={PAGE_LENGTH}&offset={offset}"));
        let page = page.as_array().unwrap();
        let tokens = page.iter().flat_map(|market| market["clob_token_ids"].as_array().unwrap());
        // A market that is not set up yet has none.
        for token in tokens.map(|token| token.as_str().unwrap()).filter(|id| !id.is_empty()) {
            let path = format!("/v1/book?token_id={token}");
            let answer = exchange.client.get(&path);
            if answer.status == 404 {
                continue;
            }
            let book = answer.ok(200);
            books += 1;
            if let Some(hash) = book["hash"].as_str() {
                assert_eq!(hash_of(&book), hash, "{book}");
                hashed += 1;
            }
        }
        if page.len() < PAGE_LENGTH {
            break;
        }
    }
    (books, hashed)
}

#[test]
fn every_hash_of_a_real_book_can_be_computed_from_its_answer() {
    let Some(recording) = recordings() else { return };
    let (books, hashed) = check(&recording);
    eprintln!("{hashed} of {books} books have a hash");
    assert_eq!(hashed, 125);
}

#[test]
fn every_hash_of_an_invented_book_can_be_computed_from_its_answer() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/venue");
    let (books, hashed) = check(&fixtures);
    assert!(0 < hashed && hashed < books, "{hashed} of {books}");
}
