use super::*;

/// Parses a market with an id and these fields.
fn parse(fields: &str) -> Result<Description, String> {
    market(&format!(r#"{{"conditionId":"0xa",{fields}}}"#)).map_err(|error| error.to_string())
}

/// The tokens and the status of an open market with these fields.
fn tokens(fields: &str) -> Result<(String, MarketStatus), String> {
    let open = concat!(
        r#""outcomes":"[\"Yes\",\"No\"]","active":true,"#,
        r#""enableOrderBook":true,"acceptingOrders":true"#,
    );
    let info = parse(&format!("{open},{fields}"))?.info;
    let tokens: Vec<&str> = info.outcomes.iter().map(|outcome| &*outcome.token_id).collect();
    Ok((tokens.join(" "), info.status))
}

#[test]
fn a_market_trades_under_the_tokens_of_its_version() {
    let old = r#""clobTokenIds":"[\"1\",\"2\"]""#;
    let new = r#""positionIds":["31","32"]"#;
    let open = |tokens: &str| Ok((tokens.to_owned(), MarketStatus::Open));
    for (fields, expected) in [
        (old.to_owned(), open("1 2")),
        (format!(r#"{old},"version":"v1""#), open("1 2")),
        (format!(r#"{old},"version":null"#), open("1 2")),
        (format!("{old},{new}"), open("1 2")),
        (format!(r#"{old},{new},"version":"v2""#), open("31 32")),
        (format!(r#"{new},"version":"v2""#), open("31 32")),
        (r#""positionIds":"[\"31\",\"32\"]","version":"v2""#.to_owned(), open("31 32")),
        // The position ids are not known yet. The token ids are not what it trades under.
        (format!(r#"{old},"version":"v2""#), Ok((" ".to_owned(), MarketStatus::Hydrating))),
        (
            format!(r#"{old},{new},"version":"v3""#),
            Err("field version: expected v1 or v2".to_owned()),
        ),
        (
            r#""clobTokenIds":"[\"1\",\"1\"]""#.to_owned(),
            Err("field clobTokenIds: expected a token of its own for each outcome".to_owned()),
        ),
        (
            r#""clobTokenIds":"[\"1\",\"2\",\"3\"]""#.to_owned(),
            Err("field clobTokenIds: expected no more tokens than outcomes".to_owned()),
        ),
    ] {
        assert_eq!(tokens(&fields), expected, "{fields}");
    }
}

/// The status and whether it is a placeholder.
type Stage = (MarketStatus, bool);

const TRADED: Stage = (MarketStatus::Open, false);
const PLACEHOLDER: Stage = (MarketStatus::Paused, true);

#[test]
fn a_market_for_what_its_event_does_not_name_is_paused() {
    let open = concat!(
        r#""outcomes":"[\"Yes\",\"No\"]","clobTokenIds":"[\"1\",\"2\"]","active":true,"#,
        r#""enableOrderBook":true,"acceptingOrders":true,"negRisk":true"#,
    );
    let stage = |info: &MarketInfo| (info.status, info.is_placeholder);
    let augmented = r#""events":[{"id":"7","negRiskAugmented":true}]"#;
    let plain = r#""events":[{"id":"7","negRiskAugmented":false}]"#;
    let titled = |title: &str, event: &str| format!(r#""groupItemTitle":"{title}",{event}"#);
    for (fields, expected) in [
        (r#""negRiskOther":true"#.to_owned(), PLACEHOLDER),
        (r#""negRiskOther":"true""#.to_owned(), PLACEHOLDER),
        (r#""negRiskOther":false"#.to_owned(), TRADED),
        (r#""negRiskOther":null"#.to_owned(), TRADED),
        (format!(r#""negRiskOther":true,{augmented}"#), PLACEHOLDER),
        (titled("Person A", augmented), PLACEHOLDER),
        (titled("Player AB", augmented), PLACEHOLDER),
        (titled("Person A", plain), TRADED),
        (titled("Person A", r#""events":[]"#), TRADED),
        (titled("Ada Quill", augmented), TRADED),
        (titled("Person", augmented), TRADED),
        (titled("Person a", augmented), TRADED),
        (titled("Person ABC", augmented), TRADED),
        (titled("Plan B", augmented), TRADED),
        // The venue does not trade it either.
        (
            r#""negRiskOther":true,"acceptingOrders":false"#.to_owned(),
            (MarketStatus::Paused, false),
        ),
        (r#""negRiskOther":true,"closed":true"#.to_owned(), (MarketStatus::Closed, true)),
    ] {
        let open = if fields.contains("acceptingOrders") {
            open.replace(r#""acceptingOrders":true,"#, "")
        } else {
            open.to_owned()
        };
        assert_eq!(stage(&parse(&format!("{open},{fields}")).unwrap().info), expected, "{fields}");
    }
    assert_eq!(
        parse(r#""active":true,"enableOrderBook":true,"acceptingOrders":true,"negRiskOther":1"#)
            .map(drop),
        Err("field negRiskOther: expected true or false".to_owned())
    );
    // In a list of events, the markets do not repeat what their event is.
    for (is_augmented, expected) in [(true, PLACEHOLDER), (false, TRADED)] {
        let market = format!(r#"{{"conditionId":"0xa",{open},"groupItemTitle":"Person A"}}"#);
        let fields = format!(r#""id":"7","negRiskAugmented":{is_augmented}"#);
        let text = format!(r#"{{{fields},"markets":[{market}]}}"#);
        let [Ok(market)] = &event(&text).unwrap()[..] else { panic!("{text}") };
        assert_eq!(stage(&market.info), expected);
    }
}

#[test]
fn a_condition_id_may_have_31_bytes() {
    for digits in [62, 64] {
        let id = format!("0x{}", "a".repeat(digits));
        assert_eq!(
            &*market(&format!(r#"{{"conditionId":"{id}"}}"#)).unwrap().info.condition_id,
            id
        );
    }
}

/// Text that orders depend on is refused if it is too long. Text that is only displayed is ignored.
#[test]
fn no_text_exceeds_its_limit() {
    let long = |bytes: usize| "x".repeat(bytes);
    for (bytes, is_valid) in [(1, true), (200, true), (201, false), (270_000, false)] {
        let fields =
            format!(r#""outcomes":"[\"{}\",\"No\"]","clobTokenIds":"[\"1\",\"2\"]""#, long(bytes));
        assert_eq!(parse(&fields).is_ok(), is_valid, "a label of {bytes} bytes");
    }
    for (bytes, is_shown) in [(1, true), (2_048, true), (2_049, false), (270_000, false)] {
        for name in ["question", "slug", "category", "image", "icon"] {
            let info = parse(&format!(r#""{name}":"{}""#, long(bytes))).unwrap().info;
            let texts = [info.question, info.slug, info.category, info.image_url];
            assert_eq!(texts.iter().any(Option::is_some), is_shown, "{name} of {bytes} bytes");
        }
        let info = parse(&format!(r#""events":[{{"id":7,"title":"{}"}}]"#, long(bytes)));
        let event = info.unwrap().info.event.unwrap();
        assert_eq!(
            (&*event.id, event.title.is_some()),
            ("7", is_shown),
            "a title of {bytes} bytes"
        );
    }
    for (id, is_known) in [(long(1), true), (long(80), true), (long(81), false), (long(0), false)] {
        let info = parse(&format!(r#""events":[{{"id":"{id}","title":"A"}}]"#)).unwrap().info;
        assert_eq!(info.event.is_some(), is_known, "an id of {} bytes", id.len());
    }
}

#[test]
fn books_are_cleared_at_the_start_of_a_game_if_the_venue_says_so() {
    let cleared = |fields: &str| parse(fields).map(|market| market.info.books_cleared_at);
    let start = r#""gameStartTime":"2026-03-11 16:00:00+00""#;
    assert_eq!(
        cleared(&format!(r#"{start},"clearBookOnStart":true"#)),
        Ok(Some(Timestamp::from_seconds(1_773_244_800)))
    );
    assert_eq!(cleared(&format!(r#"{start},"clearBookOnStart":false"#)), Ok(None));
    assert_eq!(cleared(start), Ok(None));
    assert_eq!(cleared(r#""clearBookOnStart":true"#), Ok(None));
    assert_eq!(
        cleared(r#""gameStartTime":"soon","clearBookOnStart":true"#),
        Err("field gameStartTime: expected a time".to_owned())
    );
}

#[test]
fn the_delay_of_marketable_orders_is_read_in_every_form() {
    let delay = |fields: &str| {
        let market = parse(&format!(r#""slug":"a"{fields}"#))?;
        Ok((market.info.taker_delay_ms, market.is_delay_stated))
    };
    for (fields, expected) in [
        ("", Ok((0, false))),
        (r#","secondsDelay":null"#, Ok((0, false))),
        (r#","secondsDelay":"""#, Ok((0, false))),
        (r#","secondsDelay":0"#, Ok((0, true))),
        (r#","secondsDelay":3"#, Ok((3_000, true))),
        (r#","secondsDelay":"3""#, Ok((3_000, true))),
        (r#","secondsDelay":0.25"#, Ok((250, true))),
        (r#","secondsDelay":"0.25""#, Ok((250, true))),
        (r#","secondsDelay":0.0006"#, Ok((1, true))),
        (r#","secondsDelay":60"#, Ok((60_000, true))),
        (r#","secondsDelay":1e30"#, Ok((u32::MAX, true))),
        (r#","takerDelayMs":150"#, Ok((150, true))),
        (r#","takerDelayMs":"150","secondsDelay":0"#, Ok((150, true))),
        (r#","takerDelayMs":null,"secondsDelay":2"#, Ok((2_000, true))),
        // An order that should have waited must not fill at once.
        (r#","secondsDelay":-1"#, Err("field secondsDelay: expected a delay of 0 or more")),
        (r#","takerDelayMs":-150"#, Err("field takerDelayMs: expected a delay of 0 or more")),
        (r#","secondsDelay":true"#, Err("field secondsDelay: expected a string or a number")),
        (r#","secondsDelay":"soon""#, Err("field secondsDelay: not a decimal number")),
    ] {
        assert_eq!(delay(fields), expected.map_err(str::to_owned), "{fields}");
    }
}
