use super::*;

const TIMING: Timing = Timing {
    verified_max: Duration::from_mins(2),
    check_after: Duration::from_mins(1),
    suspect_grace: Duration::from_millis(500),
    sync_timeout: Duration::from_secs(5),
    book_request_pause: Duration::from_secs(2),
    ..Timing::VENUE
};

fn tracker() -> Tracker {
    let mut tracker = Tracker::default();
    tracker.follow("1".into(), "0xa".into(), 0);
    tracker
}

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A sweep with no frames left in the queue.
fn sweep(tracker: &mut Tracker, millis: u64) -> Sweep {
    tracker.sweep(at(millis), at(millis), &TIMING)
}

/// Signals with their times; then when the book is first requested and when it expires, with
/// sweeps every 100 ms.
#[test]
fn a_book_is_requested_in_time_and_expires_without_proof() {
    for (signals, due_ms, expired_ms) in [
        (&[][..], None, None),
        (&[(0, Signal::Opened)], Some(5_000), None),
        (&[(0, Signal::Opened), (1_000, Signal::Proven)], Some(61_000), Some(121_100)),
        (
            &[(0, Signal::Opened), (0, Signal::Proven), (30_000, Signal::Agreed)],
            Some(90_000),
            Some(150_100),
        ),
        (
            &[(0, Signal::Opened), (0, Signal::Proven), (1_000, Signal::Contradicted)],
            Some(1_500),
            Some(120_100),
        ),
        (&[(0, Signal::Opened), (0, Signal::Proven), (1_000, Signal::Lost)], None, None),
        (&[(0, Signal::Opened), (0, Signal::Proven), (1_000, Signal::Ended)], None, None),
        // A message that agrees does not end the suspicion.
        (
            &[
                (0, Signal::Opened),
                (0, Signal::Proven),
                (1_000, Signal::Contradicted),
                (1_100, Signal::Agreed),
            ],
            Some(1_500),
            Some(120_100),
        ),
    ] {
        let mut tracker = tracker();
        let (mut due, mut expired) = (None, None);
        let mut signals_left = signals.iter().peekable();
        for millis in (0..200_000).step_by(100) {
            while let Some((_, signal)) = signals_left.next_if(|(when, _)| *when <= millis) {
                tracker.signal("1", *signal, at(millis));
            }
            let sweep = sweep(&mut tracker, millis);
            due = due.or((!sweep.due.is_empty()).then_some(millis));
            expired = expired.or((!sweep.expired.is_empty()).then_some(millis));
        }
        assert_eq!((due, expired), (due_ms, expired_ms), "{signals:?}");
    }
}

#[test]
fn requests_back_off_while_answers_prove_nothing() {
    let mut tracker = tracker();
    tracker.signal("1", Signal::Opened, at(0));
    let mut requested = Vec::new();
    for second in 0..150 {
        for (_, connection) in sweep(&mut tracker, second * 1_000).due {
            requested.push(second);
            assert!(tracker.answered("1", connection));
        }
    }
    assert_eq!(requested, [5, 9, 17, 33, 65, 129]);
    tracker.signal("1", Signal::Proven, at(150_000));
    assert_eq!(tracker.unproven_answer_count("1"), 0);
}

#[test]
fn an_answer_from_before_a_reconnect_is_discarded() {
    let mut tracker = tracker();
    tracker.signal("1", Signal::Opened, at(0));
    let (_, connection) = sweep(&mut tracker, 5_000).due[0];
    tracker.signal("1", Signal::Lost, at(5_100));
    tracker.signal("1", Signal::Opened, at(5_200));
    assert!(!tracker.answered("1", connection));
    assert!(!tracker.answered("2", 0));
}

#[test]
fn a_socket_that_does_not_catch_up_with_the_book_endpoint_is_silent() {
    for (is_confirmed, is_proven) in [(false, false), (true, false), (false, true)] {
        let mut tracker = tracker();
        tracker.signal("1", Signal::Opened, at(0));
        assert!(tracker.expect("1", at(3_000)));
        if is_confirmed {
            tracker.note_socket_book("1");
        }
        if is_proven {
            tracker.signal("1", Signal::Proven, at(3_100));
        }
        assert_eq!(sweep(&mut tracker, 3_000).silent_sockets, [0; 0]);
        // The first sweep after the deadline only warns: the update may still be unread.
        assert_eq!(sweep(&mut tracker, 9_000).silent_sockets, [0; 0]);
        let silent = sweep(&mut tracker, 9_001).silent_sockets;
        assert_eq!(silent.is_empty(), is_confirmed || is_proven);
        assert!(sweep(&mut tracker, 9_002).silent_sockets.is_empty(), "reported once");
    }
}

/// After a pause of our own, the socket's update may still be in the queue.
#[test]
fn a_socket_is_not_silent_while_its_messages_are_queued() {
    for (received_until, is_silent) in [(7_999, false), (8_000, false), (8_001, true)] {
        let mut tracker = tracker();
        tracker.signal("1", Signal::Opened, at(0));
        assert!(tracker.expect("1", at(3_000)));
        let mut sweep = |millis| tracker.sweep(at(millis), at(received_until), &TIMING);
        let silent = [sweep(20_000), sweep(20_250)].map(|sweep| sweep.silent_sockets.len());
        assert_eq!(silent, [0, usize::from(is_silent)], "{received_until}");
    }
}

#[test]
fn a_book_is_doubted_while_its_socket_does_not_confirm_it() {
    let mut tracker = tracker();
    tracker.signal("1", Signal::Opened, at(0));
    tracker.signal("1", Signal::Proven, at(0));
    assert!(tracker.expect("1", at(3_000)));
    assert!(!tracker.expect("1", at(3_400)), "it is expected already");
    assert!(sweep(&mut tracker, 3_500).expired.is_empty());
    assert_eq!(sweep(&mut tracker, 3_501).expired, ["1".into()]);
    assert!(sweep(&mut tracker, 3_502).expired.is_empty(), "told once");
    // Any full book of the socket settles it.
    tracker.note_socket_book("1");
    for millis in [9_000, 9_001] {
        assert!(sweep(&mut tracker, millis).silent_sockets.is_empty());
    }
    // Best prices that are ahead are doubted too, unless something follows.
    for (signal, is_doubted) in [(None, true), (Some(Signal::Agreed), false)] {
        tracker.note_ahead("1", at(10_000));
        tracker.note_ahead("1", at(10_200));
        if let Some(signal) = signal {
            tracker.signal("1", signal, at(10_210));
        }
        assert!(sweep(&mut tracker, 10_250).expired.is_empty());
        assert_eq!(!sweep(&mut tracker, 10_251).expired.is_empty(), is_doubted);
    }
}

#[test]
fn tokens_are_counted_by_state() {
    let mut tracker = tracker();
    tracker.follow("2".into(), "0xa".into(), 0);
    tracker.signal("2", Signal::Opened, at(0));
    assert_eq!(tracker.counts(), [1, 0, 0, 1, 0]);
    tracker.unfollow("1");
    assert_eq!(tracker.counts(), [1, 0, 0, 0, 0]);
}
