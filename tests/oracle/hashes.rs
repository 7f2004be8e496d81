//! The hashes of all books, computed from the answers of both interfaces as the venue's own clients
//! do.

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
    sha_1(&format!("{{{}}}", fields.join(",")))
}

/// The hash in a book of the venue's interface, and the one that its clients compute: of the text
/// as they received it, with an empty hash.
fn hashes_of_clob(text: &str) -> (String, String) {
    let hash = serde_json::from_str::<Value>(text).unwrap()["hash"].as_str().unwrap().to_owned();
    let hashed = text.replace(&format!(r#""hash":"{hash}""#), r#""hash":"""#);
    (hash, sha_1(&hashed))
}

fn sha_1(text: &str) -> String {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    digest.as_ref().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Computes every hash, and returns the number of books and of those to which the venue sent one.
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
            let of_clob = exchange.client.get(&format!("/book?token_id={token}"));
            assert_eq!(of_clob.status, answer.status, "{}", of_clob.text);
            if answer.status == 404 {
                continue;
            }
            let book = answer.ok(200);
            books += 1;
            let (hash, computed) = hashes_of_clob(&of_clob.text);
            assert_eq!(computed, hash, "{}", of_clob.text);
            if let Some(venues) = book["hash"].as_str() {
                assert_eq!(hash_of(&book), venues, "{book}");
                assert_eq!(hash, venues);
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
