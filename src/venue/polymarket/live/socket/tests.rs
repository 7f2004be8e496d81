use super::*;

#[test]
fn a_subscription_lists_the_tokens() {
    assert_eq!(
        subscription(&["1".into(), "2".into()], r#""type":"market""#),
        concat!(
            r#"{"assets_ids":["1","2"],"type":"market","#,
            r#""initial_dump":true,"custom_feature_enabled":true}"#
        )
    );
}

/// After a suspend, or a pause for lack of CPU, the answers may just be unread.
#[tokio::test(start_paused = true)]
async fn a_process_that_was_suspended_pings_again_before_it_gives_up() {
    let timing = crate::follow::timing::Timing::VENUE;
    let (ours, _theirs) = tokio::io::duplex(1 << 16);
    let (wanted, mut receiver) = watch::channel(Wanted::from(["1".into()]));
    let (_renewals, mut renewals) = mpsc::channel(1);
    let (_pings, pings) = mpsc::channel(1);
    let (_ponged, ponged) = watch::channel(Instant::now());
    let writer = Writer { socket: writing(ours), subscribed: HashSet::new() };
    let mut running =
        std::pin::pin!(writer.run((&mut receiver, &mut renewals), &timing, pings, ponged));
    let a_moment = Duration::from_millis(1);
    assert!(tokio::time::timeout(a_moment, &mut running).await.is_err(), "it has started");
    tokio::time::advance(timing.pong_timeout * 2).await;
    let lost = tokio::time::timeout(a_moment, &mut running).await;
    assert!(lost.is_err(), "it gives up right after the pause: {lost:?}");
    let began = Instant::now();
    let lost = running.await;
    assert!(matches!(lost, Lost::NoPong { .. }), "{lost}");
    assert!(began.elapsed() <= timing.pong_timeout, "{:?}", began.elapsed());
    drop(wanted);
}

#[test]
fn a_close_frame_is_shown_as_text() {
    assert_eq!(close_text(&[]), "without a code");
    assert_eq!(close_text(&[3, 232]), "1000");
    assert_eq!(close_text(b"\x03\xf3restart"), "1011 restart");
}
