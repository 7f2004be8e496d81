//! The bare loop: it writes frames of the same length, of as many markets that change at the same
//! times, to as many sockets on the same runtime, and does nothing else. Beside it, a server
//! without readers follows the evening at the same speed, so that both measurements leave the same
//! share of the machine.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::measure::{Course, RETURN_MEMORY, WALK_PATIENCE};
use super::{Arrangement, Observed, Sample, StreamArgs, megabytes};
use crate::bare_plan::Plan;
use crate::machine::{CpuClock, cpu_seconds, resident_bytes};
use crate::price_readers::{PriceReaders, ReaderFigures, Reading, Via};
use crate::server::Kind;
use crate::setup::{Setup, Target};
use crate::venue::Followed;
use crate::venue::evening::Speed;

/// Measures the bare loop after a server whose sockets got frames like these, and whose venue took
/// this course. Without the evening, markets change evenly.
pub(super) fn measure(
    setup: &Setup,
    arguments: &StreamArgs,
    round: u32,
    like: &ReaderFigures,
    Course { mut changes, played_ms }: Course,
) -> anyhow::Result<Sample> {
    let measured = Duration::from_secs_f64(setup.arguments.seconds);
    let cycle_ms = u64::try_from(measured.as_millis())?;
    if arguments.evening.is_none() {
        let (messages, markets) = (u64::from(arguments.messages), arguments.markets);
        let places = (0..messages * cycle_ms / 1_000).zip((0..markets).cycle());
        changes = places.map(|(place, market)| (place * 1_000 / messages, market)).collect();
    }
    ensure!(!changes.is_empty(), "nothing changes in this time: take longer");
    let reader_count = arguments.readers - arguments.stopped;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hundreds")]
    let frame_bytes = (like.megabytes_per_second * 1e6 / like.frames_per_second) as usize;
    let plan = Plan { frame_bytes, socket_count: reader_count as usize, changes, cycle_ms };
    let beside = match arguments.evening {
        Some(_) => Some(Followed::start_with(setup, "beside", arguments.markets * 2, true, &[])?),
        None => None,
    };
    let folder = setup.scratch.0.join("bare");
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("plan.json");
    std::fs::write(&file, serde_json::to_string(&plan)?)?;
    let flags = ["--plan", file.to_str().context("a path of the scratch folder is text")?];
    let server = setup.start_with(Kind::Bare, &folder, &flags, &RETURN_MEMORY)?;
    let target = Target::of(&server, vec!["none".to_owned()]);
    let bytes_without = resident_bytes(target.pids[0])?;
    let groups = vec![Vec::new(); reader_count as usize];
    // Its readers do the same work for each frame as those of the server.
    let reading = Reading { keeps_last: true, ..Reading::of(Via::Socket) };
    let mut readers = PriceReaders::open(&target, &groups, reading)?;
    let cpu_before = cpu_seconds(CpuClock::Trees(&target.pids))?;
    drop(readers.take()?);
    let began = Instant::now();
    if let Some(Followed { mut venue, server: _server, .. }) = beside {
        let times = u32::try_from((played_ms / cycle_ms.max(1)).max(1))?;
        venue.go_on(Speed::Times(times), measured)?;
        venue.walked(measured + WALK_PATIENCE)?.context("the evening did not end")?;
    } else {
        std::thread::sleep(measured);
    }
    let counts = readers.take()?;
    let elapsed = began.elapsed();
    let cpu = cpu_seconds(CpuClock::Trees(&target.pids))? - cpu_before;
    readers.ensure_open()?;
    ensure!(
        counts.frame_count >= u64::from(reader_count),
        "the bare loop left readers without frames"
    );
    let megabytes_with = megabytes(resident_bytes(target.pids[0])?);
    readers.close()?;
    let megabytes_without = megabytes(bytes_without);
    Ok(Sample {
        round,
        arrangement: Arrangement::Bare,
        observed: Observed {
            sockets: Some(ReaderFigures::of(&counts, elapsed, cpu)),
            streams: None,
            megabytes_over_time: vec![megabytes_with],
        },
        undisturbed: None,
        megabytes_without,
        megabytes_with,
        kilobytes_per_reader: (megabytes_with - megabytes_without) * 1e3 / f64::from(reader_count),
        disorder_count: 0,
        differing_count: 0,
        untrue_count: None,
        made_after_ms: [0; 2],
        stale_count: 0,
        churned_count: 0,
        left_behind: 0,
    })
}
