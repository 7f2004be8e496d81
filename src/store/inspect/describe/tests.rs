use std::fmt::Write as _;

use super::*;
use crate::journal::record::tests::every_kind;
use paperbourse_core::ids::ShardId;

fn known(index: MarketIndex) -> Option<UsedMarket> {
    (index == MarketIndex(9)).then(|| UsedMarket {
        condition_id: "0xab".into(),
        outcomes: vec![("Yes".into(), "1".into()), ("N\u{1b}o".into(), "2".into())],
    })
}

/// Scripts rely on the field names and kinds in the JSON.
#[test]
fn every_kind_of_event_has_a_line_and_a_json_form() {
    let mut text = String::new();
    for event in every_kind() {
        let row = EventRow::new(&event, &mut known);
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(json["kind"], kind(&event));
        writeln!(text, "{row}\n{}\n", serde_json::to_string(&row).unwrap()).unwrap();
    }
    insta::assert_snapshot!(text);
}

#[test]
fn descriptions_contain_no_secrets() {
    // The bytes of the hashes, fingerprints and digests in the events.
    let secrets = [7_u8, 1, 2, 3, 9];
    let forms = |byte: u8| {
        let number = u128::from_le_bytes([byte; 16]).to_string();
        [format!("{byte:02x}").repeat(4), number[..8].to_owned(), format!("{byte},{byte},{byte}")]
    };
    for event in every_kind() {
        let row = EventRow::new(&event, &mut known);
        let text = format!("{row} {}", serde_json::to_string(&row).unwrap());
        for form in secrets.into_iter().flat_map(forms) {
            assert!(!text.contains(&form), "{form} in {text}");
        }
    }
}

#[test]
fn a_record_is_one_line_and_an_unknown_market_shows_its_index() {
    let header = RecordHeader {
        shard: ShardId::new(5).unwrap(),
        epoch: 3,
        sequence: 77,
        at: Timestamp::from_millis(1_784_578_686_071),
    };
    let events = every_kind();
    let row = RecordRow::new(1234, &header, &events, |_| None);
    let line = row.to_string();
    assert!(line.starts_with("1234 epoch 3 shard 5 record 77 2026-07-20T20:18:06.071Z: opened"));
    assert!(
        line.contains("; filled order 197: account 69 sells 0.000003 of outcome 1 in market 9")
    );
    assert!(line.contains("; forgot key 133; named key 133 \"desk\"; "), "{line}");
    assert!(line.contains("; settled market 2; placed order 197: "), "{line}");
    assert!(line.chars().all(|character| !character.is_control()));
    let json = serde_json::to_value(&row).unwrap();
    assert_eq!(json["position"], 1234);
    assert_eq!(json["time"], "2026-07-20T20:18:06.071Z");
    assert_eq!(json["events"].as_array().unwrap().len(), events.len());
}
