use super::*;

#[test]
fn a_plan_is_a_list_of_kinds() {
    let wallet = "0x00000000000000000000000000000000000000aB";
    let lower = wallet.to_lowercase();
    let rows = [
        ("", "seed=0".to_owned()),
        ("seed=7", "seed=7".to_owned()),
        ("lost=2%, seed=3", "seed=3,lost=2%".to_owned()),
        ("late=0.5%", "seed=0,late=0.5%:5s".to_owned()),
        ("lag=30%:2s-50s", "seed=0,lag=30%:2s-50s".to_owned()),
        ("lag=0.0001%:1500ms", "seed=0,lag=0.0001%:1500ms".to_owned()),
        ("failed=100%:1ms-3600s", "seed=0,failed=100%:1ms-3600s".to_owned()),
        ("lost=off", "seed=0,lost=off".to_owned()),
        (&format!("lost=2%,{wallet}.lost=off"), format!("seed=0,lost=2%,{lower}.lost=off")),
    ];
    for (text, shown) in rows {
        let plan: Plan = text.parse().unwrap();
        assert_eq!(plan.to_string(), shown);
        assert_eq!(shown.parse(), Ok(plan), "{shown}");
    }
    let refused = [
        ("lost", "\"lost\" should be KIND=PROBABILITY"),
        ("loss=1%", "\"loss\" is not a kind of trouble; there are lost, late, reset, "),
        ("seed=-1", "the seed \"-1\""),
        ("seed=1,seed=1", "seed is named twice"),
        ("lost=1%,lost=2%", "lost is named twice"),
        ("lost=2", "the probability \"2\""),
        ("lost=101%", "the probability \"101%\""),
        ("lost=100.1%", "the probability \"100.1%\""),
        ("lost=.1%", "the probability \".1%\""),
        ("lost=1.00001%", "the probability \"1.00001%\""),
        ("lost=-1%", "the probability \"-1%\""),
        ("lost=1%:5s", "lost has no length"),
        ("late=1%:5", "the length \"5\""),
        ("late=1%:0s", "the length \"0s\""),
        ("late=1%:5s-2s", "the length \"5s-2s\""),
        ("late=1%:3601s", "the length \"3601s\""),
        ("late=1%:99999999999s", "the length \"99999999999s\""),
        ("0x12.lost=1%", "\"0x12\" is not the address of a wallet"),
    ];
    for (text, expected) in refused {
        let flaw = text.parse::<Plan>().unwrap_err().to_string();
        assert!(flaw.starts_with(expected), "{text}: {flaw}");
    }
}

/// Draws so many times for a subject, with a second between, and returns which met trouble.
fn met(draws: &mut Draws, kind: Kind, subject: &str, count: u64) -> Vec<Drawn> {
    let draw = |second| draws.draw(kind, subject, Some(subject), 1_000 * second);
    (1..=count).filter_map(draw).collect()
}

fn plan(text: &str) -> Draws {
    Draws::new(text.parse().unwrap())
}

#[test]
fn the_same_seed_gives_the_same_trouble_however_subjects_alternate() {
    let text = "seed=5,lost=10%,lag=20%:2s-50s";
    let mut alone = plan(text);
    let expected = [
        met(&mut alone, Kind::Lost, "a", 500),
        met(&mut alone, Kind::Lag, "a", 500),
        met(&mut alone, Kind::Lost, "b", 500),
    ];
    let mut beside = plan(text);
    let mut found = [const { Vec::new() }; 3];
    for second in 1..=500 {
        let rows = [(Kind::Lost, "b", 2), (Kind::Lag, "a", 1), (Kind::Lost, "a", 0)];
        for (kind, subject, place) in rows {
            found[place].extend(beside.draw(kind, subject, None, 1_000 * second));
        }
    }
    assert_eq!(found, expected);
    assert_ne!(expected[0], expected[2]);
    let other = met(&mut plan("seed=6,lost=10%"), Kind::Lost, "a", 500);
    assert_ne!(other, expected[0]);
}

#[test]
fn trouble_is_as_frequent_and_as_long_as_planned() {
    let mut draws = plan("lost=2%,lag=100%:2s-50s");
    let lost_count = met(&mut draws, Kind::Lost, "a", 100_000).len();
    assert!((1_800..2_200).contains(&lost_count), "{lost_count}");
    let lags = met(&mut draws, Kind::Lag, "a", 10_000);
    assert_eq!(lags.len(), 10_000);
    let mean_ms = lags.iter().map(|lag| u64::from(lag.length_ms)).sum::<u64>() / 10_000;
    assert!((25_000..27_000).contains(&mean_ms), "{mean_ms}");
    assert!(lags.iter().all(|lag| (2_000..=50_000).contains(&lag.length_ms)));
    assert!(met(&mut draws, Kind::Failed, "a", 1_000).is_empty(), "not in the plan");
}

#[test]
fn a_window_is_open_for_its_length() {
    let mut draws = plan("restarting=100%:10s");
    let mut at = |now_ms| draws.draw(Kind::Restarting, "a", None, now_ms).unwrap();
    let rows = [(1_000, 10_000, false), (4_000, 7_000, true), (10_999, 1, true)];
    for (now_ms, length_ms, goes_on) in rows {
        let drawn = at(now_ms);
        assert_eq!((drawn.length_ms, drawn.goes_on), (length_ms, goes_on), "{now_ms}");
    }
    assert!(!at(11_000).goes_on, "it is over");
    assert_eq!(draws.open_to_all_ms(Kind::Restarting, "a", 12_000), 9_000);
    assert_eq!(draws.open_to_all_ms(Kind::Restarting, "b", 12_000), 0);
    draws.follow("restarting=off".parse().unwrap());
    assert_eq!(draws.open_to_all_ms(Kind::Restarting, "a", 12_000), 0, "turned off");
    assert_eq!(draws.draw(Kind::Restarting, "a", None, 12_000), None);
    draws.follow("restarting=100%".parse().unwrap());
    assert_eq!(draws.open_to_all_ms(Kind::Restarting, "a", 12_000), 0, "it does not open again");
}

#[test]
fn a_window_of_a_market_is_open_to_wallets_without_a_rule() {
    let own = format!("0x{:040x}", 1);
    let mut draws = plan(&format!("{own}.tick=100%:10s"));
    assert_eq!(draws.draw(Kind::Tick, "market", Some("0x2"), 1_000), None);
    assert_eq!(draws.open_to_all_ms(Kind::Tick, "market", 1_000), 0);
    draws.draw(Kind::Tick, "market", Some(&own), 1_000).unwrap();
    assert_eq!(draws.open_to_all_ms(Kind::Tick, "market", 2_000), 9_000);
    assert_eq!(draws.open_to_all_ms(Kind::Tick, "other", 2_000), 0);
    draws.follow("lost=1%".parse().unwrap());
    assert_eq!(draws.open_to_all_ms(Kind::Tick, "market", 2_000), 0);
}

#[test]
fn draws_of_a_socket_that_has_ended_are_forgotten() {
    let mut draws = plan("gap=100%,lost=100%");
    let number =
        |draws: &mut Draws, kind, subject| draws.draw(kind, subject, None, 0).unwrap().number;
    for subject in ["1 a", "1 b", "11 a"] {
        assert_eq!(number(&mut draws, Kind::Gap, subject), 1);
        assert_eq!(number(&mut draws, Kind::Lost, subject), 1);
    }
    draws.forget_frames("1 ");
    assert_eq!(number(&mut draws, Kind::Gap, "1 a"), 1);
    assert_eq!(number(&mut draws, Kind::Gap, "11 a"), 2);
    assert_eq!(number(&mut draws, Kind::Lost, "1 b"), 2);
}

#[test]
fn a_wallets_own_rules_replace_those_of_all() {
    let (own, other) = (format!("0x{:040x}", 1), format!("0x{:040x}", 2));
    let mut draws = plan(&format!("lost=off,late=100%,{own}.lost=100%,{own}.late=off"));
    assert_eq!(met(&mut draws, Kind::Lost, &own, 10).len(), 10);
    assert_eq!(met(&mut draws, Kind::Late, &own, 10).len(), 0);
    assert_eq!(met(&mut draws, Kind::Lost, &other, 10).len(), 0);
    assert_eq!(met(&mut draws, Kind::Late, &other, 10).len(), 10);
}

#[test]
fn lines_are_read_as_they_were_written() {
    let lines = [
        Line::Met(Met {
            at_ms: 5,
            trouble: Kind::NotRun,
            number: 2,
            length_ms: 0,
            wallet: Some("0xab".into()),
            address: None,
            orders: vec!["0xff".into()],
            token: None,
        }),
        Line::Act(Act {
            at_ms: 6,
            act: ActKind::MarketSocket,
            wallet: None,
            address: Some("::1".into()),
            status: 0,
            order: None,
            tokens: vec!["71".into()],
        }),
    ];
    for line in lines {
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line, "{text}");
    }
}
