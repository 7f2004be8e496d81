use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::json;

use super::*;

fn effort() -> Effort {
    Effort { request_count: 1, elapsed: Duration::from_secs(1) }
}

/// At 10 s, half a second after the request.
fn answered(service: Service, asked: Asked, body: &str) -> Seen {
    Seen::Answered(Answered {
        service,
        asked,
        path: "/path".to_owned(),
        headers: Headers::default(),
        sent_at: Timestamp::from_millis(9_500),
        received_at: Timestamp::from_millis(10_000),
        body: body.into(),
    })
}

fn failed(service: Service, asked: Asked, failure: Failure) -> Seen {
    Seen::Failed { service, asked: Some(asked), failure }
}

fn id(digits: usize, end: &str) -> String {
    format!("0x{}{end}", "a".repeat(digits - end.len()))
}

/// Gamma's description of a market with these fields besides the usual ones.
fn market(fields: &Value) -> Value {
    let mut market = json!({
        "conditionId": id(64, ""), "outcomes": ["Yes", "No"], "clobTokenIds": ["1", "2"],
        "orderPriceMinTickSize": 0.01, "orderMinSize": 5, "negRisk": false,
    });
    for (name, value) in fields.as_object().unwrap() {
        market[name] = value.clone();
    }
    market
}

fn gamma(fields: &Value) -> Seen {
    let body = json!({"markets": [market(fields)]}).to_string();
    answered(Service::Gamma, Asked::Markets { is_optional: false }, &body)
}

fn compact(fields: &Value) -> Seen {
    let mut row = json!({
        "c": id(64, ""), "t": [{"t": "1", "o": "Yes"}, {"t": "2", "o": "No"}], "mos": 5,
        "mts": 0.01, "ao": true,
    });
    for (name, value) in fields.as_object().unwrap() {
        row[name] = value.clone();
    }
    answered(Service::Clob, Asked::Compact, &row.to_string())
}

fn page(after: Option<&str>, ids: &[&str], next: &str) -> Seen {
    let markets: Vec<Value> = ids.iter().map(|it| market(&json!({"conditionId": it}))).collect();
    let body = json!({"markets": markets, "next_cursor": next}).to_string();
    let after = after.map(str::to_owned);
    answered(Service::Gamma, Asked::Page { limit: 2, after }, &body)
}

/// A requested book without a hash.
fn book(fields: &Value) -> Seen {
    let mut book = json!({
        "market": id(64, ""), "asset_id": "1", "timestamp": "1000", "bids": [], "asks": [],
        "min_order_size": "5", "tick_size": "0.01", "neg_risk": false, "last_trade_price": "",
    });
    for (name, value) in fields.as_object().unwrap() {
        book[name] = value.clone();
    }
    answered(Service::Clob, Asked::Books, &json!([book]).to_string())
}

fn frame(message: &Value) -> Seen {
    Seen::Frame { text: message.to_string(), at: Timestamp::from_millis(10_000) }
}

fn tick(timestamp_ms: i64) -> Seen {
    frame(&json!({
        "event_type": "tick_size_change", "market": "0xab", "asset_id": "1",
        "new_tick_size": "0.001", "timestamp": timestamp_ms.to_string(),
    }))
}

fn closed(gamma_pays: [&str; 2], data_pays: [u32; 2]) -> Seen {
    let fields = json!({
        "closed": true, "outcomePrices": gamma_pays, "umaResolutionStatus": "resolved",
    });
    let row = json!({"condition_id": id(64, ""), "status": "resolved", "payouts": data_pays});
    Seen::Closed {
        gamma: market(&fields).to_string(),
        clob: None,
        data: Some(json!({"data": [row]}).to_string().into()),
    }
}

fn opened() -> Seen {
    Seen::Opened { token_count: 1, at: Timestamp::from_millis(2_000) }
}

fn report(seen: &[Seen]) -> Report {
    let mut doctor = Doctor::new(Duration::from_secs(1));
    for seen in seen {
        doctor.observe(seen);
    }
    doctor.finish(Timestamp::from_millis(12_000), effort()).0
}

/// What this shows of an assumption while it holds, and what breaks that one alone.
#[track_caller]
fn check(assumption: &str, sound: &[Seen], broken: &[Seen]) {
    let verdict = |report: &Report| {
        let finding = report.findings.iter().find(|it| it.assumption == assumption);
        finding.unwrap_or_else(|| panic!("no {assumption}")).verdict
    };
    let unseen = report(&[]);
    assert_eq!(verdict(&unseen), Verdict::NotSeen, "{assumption}");
    let sound = report(sound);
    assert_eq!(verdict(&sound), Verdict::Ok, "{assumption}\n{sound}");
    let broken = report(broken);
    let named = broken.findings.iter().filter(|it| it.verdict == Verdict::Broken);
    let named: Vec<&str> = named.map(|it| it.assumption).collect();
    assert_eq!(named, [assumption], "{broken}");
}

#[test]
fn names_fit_their_column_and_differ() {
    let mut names: Vec<&str> = report(&[]).findings.iter().map(|it| it.assumption).collect();
    assert!(names.iter().all(|name| name.len() <= report::NAME_CHARACTERS_MAX), "{names:?}");
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn services_and_pages() {
    use Service::{Clob, Data, Gamma};
    let any = Asked::Markets { is_optional: false };
    let time = |body: &str| answered(Clob, Asked::Time, body);
    let status = Failure::Status;
    let silence = Failure::Unreachable("no answer".to_owned());
    check("Gamma answers", &[gamma(&json!({}))], &[failed(Gamma, any.clone(), status(503))]);
    check("the CLOB service answers", &[time("10")], &[failed(Clob, Asked::Time, silence)]);
    let resolution = || answered(Data, Asked::Resolution, "{}");
    check("the data API answers", &[resolution()], &[failed(Data, any.clone(), status(403))]);
    let refused = Seen::Failed { service: Service::Socket, asked: None, failure: status(502) };
    let frames = || {
        let book = json!({"market": id(64, ""), "asset_id": "1", "event_type": "book", "bids": [],
                          "asks": []});
        [book_of_1(), opened(), frame(&book)]
    };
    check("the market socket opens", &frames(), &[refused]);
    check("requests are understood", &[time("10")], &[failed(Clob, Asked::Long, status(404))]);
    check(
        "requests stay within the rate limits",
        &[time("10")],
        &[failed(Clob, Asked::Long, status(429))],
    );
    let known = || answered(Data, Asked::Resolution, "{}");
    let unknown = failed(Data, Asked::Resolution, status(404));
    let mostly = report(&[known(), known(), unknown]);
    assert!(mostly.is_sound(), "a market may be new");
    // The clock of the service was read within the half second.
    check("service clocks agree with ours", &[time("9"), time("14")], &[time("3")]);
    check("service clocks agree with ours", &[time("15")], &[time("16")]);
    check("a subscription sends every book", &frames(), &[opened()]);
    let lost = Seen::Lost { why: "no PONG".to_owned() };
    let [first, second, third] = frames();
    check("the socket stays open", &frames(), &[first, second, third, lost]);

    let (a, b, c, d) = (id(64, "0a"), id(64, "0b"), id(64, "0c"), id(64, "0d"));
    let first = || page(None, &[&a, &b], "x");
    check(
        "cursors lead to the next page",
        &[first(), page(Some("x"), &[&c, &d], "y")],
        &[first(), page(Some("x"), &[&a, &b], "y")],
    );
    check(
        "cursors lead to the next page",
        &[first(), page(Some("x"), &[&b, &c], "LTE=")],
        &[first(), page(Some("x"), &[&c, &d], "x")],
    );
    check("pages have the requested size", &[first()], &[page(None, &[&a], "x")]);
    check(
        "pages have the requested size",
        &[page(None, &[&a], "LTE=")],
        &[page(None, &[&a, &b, &c], "x")],
    );
}

/// A requested book with its hash, so that the socket's book of this token counts.
fn book_of_1() -> Seen {
    let text = |hash: &str| {
        let head = format!(r#"{{"market":"{}","asset_id":"1","timestamp":"1000""#, id(64, ""));
        let levels = r#""bids":[],"asks":[]"#;
        let terms = r#""min_order_size":"5","tick_size":"0.01","neg_risk":false"#;
        format!(r#"{head},"hash":"{hash}",{levels},{terms},"last_trade_price":""}}"#)
    };
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text("").as_bytes());
    let hash: Vec<String> = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    answered(Service::Clob, Asked::Books, &format!("[{}]", text(&hash.concat())))
}

#[test]
fn ids() {
    let v1 = "V1: a condition id has 64 digits";
    check(v1, &[gamma(&json!({}))], &[gamma(&json!({"conditionId": id(66, "")}))]);
    check(v1, &[compact(&json!({}))], &[compact(&json!({"c": "1234"}))]);
    check(v1, &[book(&json!({}))], &[book(&json!({"market": id(62, "")}))]);
    let v2 = "V2: 62 digits in Gamma, 64 elsewhere";
    let of_gamma = |id: &str| {
        gamma(&json!({
            "conditionId": id, "version": "v2", "positionIds": ["1", "2"],
            "resolutionStatus": "active",
        }))
    };
    check(v2, &[of_gamma(&id(62, ""))], &[of_gamma(&id(64, "00"))]);
    check(
        v2,
        &[of_gamma(&id(62, "")), compact(&json!({"c": id(64, "00")}))],
        &[of_gamma(&id(62, "")), compact(&json!({"c": id(62, "")}))],
    );
    let tokens = |token: String| gamma(&json!({"clobTokenIds": [token, "2"]}));
    let name = "a token id has at most 78 digits";
    check(name, &[tokens("7".repeat(78))], &[tokens("7".repeat(79))]);
    check(name, &[book(&json!({}))], &[book(&json!({"asset_id": "0x1"}))]);
}

#[test]
fn descriptions() {
    let none = json!({});
    check("Gamma's markets can be read", &[gamma(&none)], &[gamma(&json!({"negRisk": "perhaps"}))]);
    let no_list = answered(Service::Gamma, Asked::Markets { is_optional: false }, "{}");
    check("Gamma's markets can be read", &[gamma(&none)], &[no_list]);
    check(
        "the CLOB service's markets can be read",
        &[compact(&none)],
        &[compact(&json!({"mts": "small"}))],
    );
    let alike = "Gamma and CLOB describe markets alike";
    let both = |fields: &Value, other: &Value| [gamma(fields), compact(other)];
    let fees = json!({"feeSchedule": {"rate": 0.05, "exponent": 1}});
    let fd = |rate: f64| json!({"fd": {"r": rate, "e": 1, "to": true}});
    check(alike, &both(&fees, &fd(0.05)), &both(&fees, &fd(0.03)));
    for other in [
        json!({"mos": 6}),
        json!({"nr": true}),
        json!({"t": [{"t": "1", "o": "Yes"}, {"t": "3", "o": "No"}]}),
    ] {
        check(alike, &both(&none, &none), &both(&none, &other));
    }
    check(
        alike,
        &[gamma(&none), book(&none)],
        &[gamma(&none), book(&json!({"min_order_size": "15"}))],
    );
    // A description that does not state the fee says nothing about it.
    assert!(report(&both(&none, &fd(0.05))).is_sound());
    let curve =
        |exponent: f64| gamma(&json!({"feeSchedule": {"rate": 0.05, "exponent": exponent}}));
    check("fees follow a known schedule", &[curve(1.0), curve(2.0)], &[curve(1.5)]);
    check(
        "ticks are known",
        &[gamma(&json!({"orderPriceMinTickSize": 0.0025})), book(&none)],
        &[book(&json!({"tick_size": "0.02"}))],
    );
    let delays = "taker delay fields are known";
    check(
        delays,
        &[compact(&json!({"itode": true, "sd": 0.25}))],
        &[gamma(&json!({"takerDelayMicros": 1}))],
    );
    let statuses = "resolution statuses are known";
    let uma = |status: &str| gamma(&json!({"umaResolutionStatus": status}));
    check(statuses, &[uma("disputed"), uma("settled")], &[uma("pondered")]);
    let stage = |status: &str| gamma(&json!({"resolutionStatus": status}));
    check(statuses, &[stage("inactive")], &[stage("asleep")]);
    check("/clob-markets fields are known", &[compact(&none)], &[compact(&json!({"zz": 1}))]);
    check(
        "resolution sources agree",
        &[closed(["1", "0"], [1_000_000, 0])],
        &[closed(["1", "0"], [0, 1_000_000])],
    );
}

#[test]
fn books_and_frames() {
    check(
        "requested books can be read",
        &[book(&json!({}))],
        &[book(&json!({"bids": [{"price": "2", "size": "1"}]}))],
    );
    let wrong = book(&json!({"hash": "00"}));
    check("V1: hashes match requested books", &[book_of_1()], &[wrong]);
    let v2 = json!({"hash": "00", "market": id(64, "00"), "version": "v2"});
    let broken = report(&[book(&v2)]).findings.into_iter().filter(|it| it.broken > 0);
    let names: Vec<&str> = broken.map(|it| it.assumption).collect();
    assert_eq!(names, ["V2: hashes match requested books"]);

    check("frames arrive near their timestamps", &[tick(9_000), tick(15_000)], &[tick(4_000)]);
    check("frames arrive near their timestamps", &[tick(5_000)], &[tick(15_001)]);
    check(
        "frames can be read",
        &[tick(10_000)],
        &[frame(&json!({"event_type": "book", "market": "0xab", "asset_id": "1"}))],
    );
    let page = Seen::Frame { text: "<html>".to_owned(), at: Timestamp::from_millis(10_000) };
    check("frames can be read", &[tick(10_000)], &[page]);
    check("frame types are known", &[tick(10_000)], &[frame(&json!({"event_type": "tide"}))]);
    let entry = |field: &str| {
        frame(&json!({
            "event_type": "price_change", "market": "0xab", "timestamp": "10000",
            "price_changes": [{"asset_id": "1", "price": "0.5", "size": "1", "side": "BUY",
                               field: null}],
        }))
    };
    check("book and frame fields are known", &[entry("hash")], &[entry("mood")]);
    check(
        "book and frame fields are known",
        &[book(&json!({"version": null}))],
        &[book(&json!({"mood": 1}))],
    );
}

/// A long look at a venue that changed completely takes no more memory than a short one.
#[test]
fn memory_is_bounded() {
    let mut doctor = Doctor::new(Duration::from_secs(1));
    for number in 0..5_000 {
        doctor.observe(&gamma(&json!({
            "conditionId": format!("0x{number:064x}"), "takerDelayHours": number,
            "umaResolutionStatus": format!("stage {number}"), "description": "x".repeat(20_000),
        })));
    }
    assert_eq!(doctor.descriptions.len(), DESCRIPTIONS_MAX);
    let (report, samples) = doctor.finish(Timestamp::from_millis(12_000), effort());
    assert!(!report.is_sound());
    let bytes: usize = samples.iter().map(|sample| sample.payload.len()).sum();
    assert!(samples.len() <= 12 && bytes < 100_000, "{} samples, {bytes} bytes", samples.len());
}
