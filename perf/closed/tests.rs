use super::*;

fn sample(
    peer: Peer,
    generator: Generator,
    connection_count: usize,
    slice: u32,
    value: f64,
) -> Sample {
    Sample {
        peer,
        generator,
        connection_count,
        turn: Turn { round: 1, slice },
        throughput: value,
        quantiles_us: [value; QUANTILES.len()],
        server_cpu_us: value,
        generator_cpu_us: value,
        server_switches: value,
    }
}

/// The machine is twice as fast in the second slice, and half as fast for the first server of
/// the third.
#[test]
fn a_ratio_is_taken_within_a_turn() {
    use Generator::{Own, RedisBenchmark};
    let values = [(1, 50.0, 40.0), (2, 100.0, 80.0), (3, 25.0, 40.0)];
    let samples = values.into_iter().flat_map(|(slice, durable, redis)| {
        [
            sample(Peer::Durable, Own, 64, slice, durable),
            sample(Peer::Redis, RedisBenchmark, 64, slice, redis),
        ]
    });
    // One that has no pair.
    let alone = sample(Peer::Durable, Own, 64, 4, 1000.0);
    let figures = Figures { samples: samples.chain([alone]).collect(), sync: vec![] };
    let ratio = figures.ratio([Peer::Durable, Peer::Redis], 64, |sample| sample.throughput);
    assert_eq!(ratio, Spread { lowest: 0.625, median: 1.25, highest: 1.25 });
}

#[test]
fn goals_compare_the_right_rows() {
    use Generator::{Own, RedisBenchmark, Wrk};
    let open_loop = [1.0, 2.0, 3.0];
    let sync = SyncTimes { p50: 100.0, p99: 200.0, open_loop, open_loop_rate: 5000.0 };
    let figures = Figures {
        samples: vec![
            sample(Peer::Durable, Own, 64, 1, 60.0),
            sample(Peer::Durable1, Own, 64, 1, 70.0),
            sample(Peer::Durable, Own, 256, 1, 80.0),
            sample(Peer::Durable, Own, 1, 1, 210.0),
            sample(Peer::Bare, Own, 1, 1, 90.0),
            sample(Peer::Bare, Own, 64, 1, 130.0),
            sample(Peer::Bare, Wrk, 64, 1, 100.0),
            sample(Peer::Memory, Own, 64, 1, 65.0),
            sample(Peer::Redis, RedisBenchmark, 64, 1, 40.0),
            sample(Peer::Redis, RedisBenchmark, 256, 1, 50.0),
            sample(Peer::Fastapi, Own, 64, 1, 1.0),
            sample(Peer::Fastapi2, Own, 64, 1, 2.0),
        ],
        sync: vec![sync],
    };
    let expected = [
        (60.0 / 40.0, 1.15),
        (70.0 / 40.0, 1.15),
        (80.0 / 50.0, 1.25),
        (60.0 / 130.0, 0.75),
        (65.0 / 130.0, 0.85),
        (60.0 / 130.0, 1.35),
        (60.0, 0.08),
        (130.0 / 100.0, 1.3),
        ((210.0 - 90.0) / 100.0, 1.3),
        (60.0 / 1.0, 45.0),
        (1.0 / 60.0, 40.0),
        (60.0 / 2.0, 45.0),
        (2.0 / 60.0, 40.0),
    ];
    let goals = figures.goals();
    assert_eq!(goals.len(), expected.len());
    for (goal, (measured, bound)) in goals.iter().zip(expected) {
        let json = serde_json::to_value(goal).unwrap();
        assert_eq!(json["measured"].as_f64(), Some(measured), "{json}");
        assert_eq!(json["bound"].as_f64(), Some(bound), "{json}");
    }
}
