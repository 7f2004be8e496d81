use super::super::wire::{clob, gamma};
use super::*;

const AT: Timestamp = Timestamp::from_nanos(5_000_000_000);

/// A description by Gamma: whether the market is closed, the stage, the prices.
fn gamma((closed, stage, prices): Gamma) -> Description {
    let stage = match stage {
        "" => String::new(),
        stage => format!(r#","umaResolutionStatus":"{stage}""#),
    };
    let text = format!(
        r#"{{"conditionId":"0xa","outcomes":"[\"Yes\",\"No\"]","clobTokenIds":"[\"1\",\"2\"]",
            "outcomePrices":"{}","closed":{closed}{stage}}}"#,
        prices.replace('"', "\\\"")
    );
    gamma::market(&text).unwrap()
}

/// A description by the CLOB service: whether the market is closed, and its tokens, each with its
/// price, with `*` behind the winner's.
fn clob((closed, tokens): Clob) -> Description {
    let token = |field: &str| {
        let (token, price) = field.split_once(':').unwrap();
        let winner = price.ends_with('*');
        let price = price.trim_end_matches('*');
        format!(
            r#"{{"token_id":"{token}","outcome":"{}","price":{price},"winner":{winner}}}"#,
            if token == "2" { "No" } else { "Yes" }
        )
    };
    let tokens: Vec<String> = tokens.split(' ').map(token).collect();
    let text =
        format!(r#"{{"condition_id":"0xa","closed":{closed},"tokens":[{}]}}"#, tokens.join(","));
    clob::long_market(&text).unwrap()
}

type Gamma = (bool, &'static str, &'static str);
type Clob = (bool, &'static str);

#[track_caller]
fn check(
    by_gamma: Option<Gamma>,
    by_clob: Option<Clob>,
    socket_winner: Option<&str>,
    expected: &str,
) {
    let outcomes = gamma((false, "", "")).info.outcomes;
    let mut reports: Vec<SourceReport> = Vec::new();
    let gamma = by_gamma.map(gamma);
    reports.extend(gamma.as_ref().map(|it| SourceReport::of(Source::Gamma, it, &outcomes)));
    let clob = by_clob.map(clob);
    reports.extend(clob.as_ref().map(|it| SourceReport::of(Source::Clob, it, &outcomes)));
    reports.extend(socket_winner.map(|token| SourceReport::winner(Some(token), AT, &outcomes)));
    let actual = match decide(&reports) {
        Resolution::Final { payouts, .. } => {
            assert_eq!(payouts.iter().map(|price| price.micros()).sum::<i64>(), 1_000_000);
            format!("pays {}/{}", payouts[0], payouts[1])
        }
        Resolution::Pending(why) => format!("{why:?}"),
    };
    assert_eq!(actual, expected, "{reports:?}");
}

#[test]
fn the_whole_rule() {
    let first = r#"["1","0"]"#;
    let second = r#"["0","1"]"#;
    let half = r#"["0.5","0.5"]"#;
    let closed = |stage, prices| Some((true, stage, prices));
    let first_wins = Some((true, "1:1* 2:0"));
    let second_wins = Some((true, "1:0 2:1*"));
    for (gamma, clob, winner, expected) in [
        // Gamma alone suffices only with a final stage.
        (closed("resolved", first), None, None, "pays 1/0"),
        (closed("resolved", second), None, None, "pays 0/1"),
        (closed("resolved", half), None, None, "pays 0.5/0.5"),
        (closed("resolved", r#"["0.9995","0.0005"]"#), None, None, "pays 1/0"),
        (closed("resolved", "[1.0, 0.0]"), None, None, "pays 1/0"),
        (closed("resolved", r#"["0.998","0.002"]"#), None, None, "NoPayouts"),
        (closed("", first), None, None, "Unconfirmed"),
        (closed("proposed", first), None, None, "Proposed"),
        (closed("disputed", first), None, None, "Disputed"),
        (closed("requested", first), None, None, "Requested"),
        (closed("settled", first), None, None, "pays 1/0"),
        (closed("settled", half), None, None, "pays 0.5/0.5"),
        (closed("settled", first), second_wins, None, "Contradiction"),
        (Some((false, "settled", first)), None, None, "Open"),
        (closed("reopened", first), None, None, "UnknownStage"),
        (Some((false, "resolved", first)), None, None, "Open"),
        (Some((false, "", r#"["0.645","0.355"]"#)), None, None, "Open"),
        // As old markets show it.
        (closed("", r#"["0","0"]"#), None, None, "NoPayouts"),
        (closed("resolved", r#"["0","0"]"#), None, None, "NoPayouts"),
        (closed("resolved", r#"["0.584","0.416"]"#), None, None, "NoPayouts"),
        (closed("resolved", r#"["1","1"]"#), None, None, "NoPayouts"),
        (closed("resolved", "[]"), None, None, "NoPayouts"),
        // The CLOB service alone never suffices.
        (None, first_wins, None, "Unconfirmed"),
        (None, Some((true, "1:0.5 2:0.5")), None, "Unconfirmed"),
        (None, Some((true, "1:1 2:0")), None, "NoPayouts"),
        (None, Some((true, "1:0 2:0")), None, "NoPayouts"),
        (None, Some((false, "1:1* 2:0")), None, "Open"),
        // Two sources that agree, whatever the order of their tokens.
        (closed("", first), first_wins, None, "pays 1/0"),
        (closed("", first), Some((true, "2:0 1:1*")), None, "pays 1/0"),
        // Both also show ½ where there never was a price.
        (closed("", half), Some((true, "1:0.5 2:0.5")), None, "Unconfirmed"),
        (closed("resolved", half), Some((true, "1:0.5 2:0.5")), None, "pays 0.5/0.5"),
        (closed("", first), Some((true, "1:1 2:0")), None, "Unconfirmed"),
        (closed("", first), Some((false, "1:0.99 2:0.01")), None, "Unconfirmed"),
        (closed("resolved", first), Some((false, "1:0.99 2:0.01")), None, "pays 1/0"),
        (Some((false, "", first)), first_wins, None, "Unconfirmed"),
        (closed("", r#"["0","0"]"#), first_wins, None, "Unconfirmed"),
        // A proposed or disputed result is not final, whoever agrees.
        (closed("proposed", first), first_wins, Some("1"), "Proposed"),
        (closed("disputed", first), first_wins, Some("1"), "Disputed"),
        (closed("requested", first), first_wins, Some("1"), "Requested"),
        // Contradictions.
        (closed("resolved", first), second_wins, None, "Contradiction"),
        (closed("", first), second_wins, None, "Contradiction"),
        (closed("resolved", half), first_wins, None, "Contradiction"),
        (closed("resolved", first), Some((true, "1:1* 9:0")), None, "Contradiction"),
        (closed("resolved", first), Some((true, "1:1* 2:0 3:0")), None, "Contradiction"),
        // The socket confirms, contradicts, and settles nothing alone.
        (None, None, Some("1"), "Open"),
        (Some((false, "", r#"["0.9","0.1"]"#)), None, Some("1"), "Open"),
        (closed("", first), None, Some("1"), "pays 1/0"),
        (None, first_wins, Some("1"), "pays 1/0"),
        (closed("", r#"["0","0"]"#), None, Some("1"), "Unconfirmed"),
        (closed("resolved", first), None, Some("2"), "Contradiction"),
        (closed("resolved", first), first_wins, Some("2"), "Contradiction"),
        (closed("resolved", first), None, Some("77"), "Contradiction"),
        (None, None, None, "Open"),
    ] {
        check(gamma, clob, winner, expected);
    }
}

#[test]
fn half_to_each_side_is_final_when_the_data_api_confirms_it() {
    let described = gamma((true, "", r#"["0.5","0.5"]"#));
    let gamma = SourceReport::of(Source::Gamma, &described, &described.info.outcomes);
    let data = SourceReport { source: Source::Data, ..gamma.clone() };
    assert!(matches!(decide(&[gamma, data]), Resolution::Final { .. }));
}

#[test]
fn a_source_does_not_confirm_itself() {
    let described = gamma((true, "", r#"["1","0"]"#));
    let report = SourceReport::of(Source::Gamma, &described, &described.info.outcomes);
    let resolution = decide(&[report.clone(), report]);
    assert_eq!(resolution, Resolution::Pending(Pending::Unconfirmed));
}

#[test]
fn the_evidence_lists_each_source_with_its_report_and_time() {
    let described = gamma((true, "resolved", r#"["1","0"]"#));
    let outcomes = &described.info.outcomes;
    let reports = [
        SourceReport::of(Source::Gamma, &described, outcomes),
        SourceReport::of(Source::Clob, &clob((false, "1:0.9 2:0.1")), outcomes),
        SourceReport::winner(Some("1"), AT, outcomes),
    ];
    let Resolution::Final { evidence, .. } = decide(&reports) else { panic!("it is final") };
    assert_eq!(
        evidence,
        "Gamma: closed resolved pays 1/0; CLOB: tells no payouts; \
         socket: pays 1/0 at 1970-01-01T00:00:05Z"
    );
}
