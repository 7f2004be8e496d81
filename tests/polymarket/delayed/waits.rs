//! What clients see while an order is delayed, and when it is decided.

use super::*;

/// Orders of every kind, each for five shares or for the dollars of ten, with what each holds back.
fn orders() -> Vec<(&'static str, Value, i64)> {
    let at_cap = COST_OF_FIVE + 100_000;
    vec![
        ("/trade", trade("BUY", 5), COST_OF_FIVE),
        ("/v1/orders", buy(&json!({"quantity": "5"})), COST_OF_FIVE),
        ("/v1/orders", buy(&json!({"quantity": "5", "time_in_force": "FAK"})), COST_OF_FIVE),
        ("/v1/orders", buy(&json!({"amount": "3.8"})), 2 * COST_OF_FIVE),
        (
            "/v1/orders",
            buy(&json!({"order_type": "limit", "quantity": "5", "price": "0.40"})),
            at_cap,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_every_kind_are_decided_on_the_book_after_the_wait() {
    play(LONG, &[], |venue, served| {
        std::thread::scope(|scope| {
            let served = &served;
            let orders = orders();
            let mut reserved: i64 = orders.iter().map(|(_, _, reserve)| 2 * reserve).sum();
            let begin = |path: &str, body: &Value| served.begin(scope, Request::post(path, body));
            let entries: Vec<_> = orders.iter().map(|(_, order, _)| order).collect();
            let batch = begin("/v1/orders/batch", &json!({"orders": entries}));
            let singles: Vec<_> =
                orders.iter().map(|(path, order, _)| begin(path, order)).collect();
            served.until_delayed(10);

            // An order that does not cross rests at once, and it alone can be cancelled.
            let below = buy(&json!({"order_type": "limit", "quantity": "5", "price": "0.10"}));
            let resting = served.done(Request::post("/v1/orders", &below)).ok(200);
            assert_eq!(
                (&resting["status"], &resting["held_ms"]),
                (&json!("PENDING"), &json!(null))
            );
            reserved += 500_000;
            assert_eq!(served.cash(), (1_000_000_000, reserved));
            for order in served.delayed() {
                let cancel = Request::delete(format!("/v1/orders/{}", order["order_id"]));
                let refused = served.done(cancel).ok(400);
                assert_eq!(refused["error"], "ORDER_NOT_CANCELLABLE");
            }
            let cancelled = served.done(Request::delete("/v1/cancel-all")).ok(200);
            assert_eq!(cancelled["canceled"], json!([resting["order_id"].to_string()]));

            remove_best_ask(venue);
            served.until_ask(NEXT_ASK);
            assert_eq!(served.delayed().len(), 10, "this machine is too slow for the test");
            let single = singles.into_iter().map(|answer| answer.join().unwrap().delayed(LONG));
            let batch = batch.join().unwrap();
            assert!(batch.after < 2 * LONG, "the entries wait side by side: {:?}", batch.after);
            let in_batch = batch.response.ok(200)["results"].as_array().unwrap().clone();
            let all: Vec<_> = single.chain(in_batch).collect();
            assert_eq!(all.len(), 10);
            for order in all {
                assert_eq!(order["status"], "FILLED", "{order}");
                assert_eq!(millionths(&order["price"]), micros(NEXT_ASK), "{order}");
                assert!(delayed_ms(&order) >= LONG.as_millis(), "{order}");
            }
        });
        let (cash, reserved) = served.cash();
        assert!(cash < 1_000_000_000 && reserved == 0, "{cash} {reserved}");
        let orders = served.orders();
        let with_status = |status: &str| orders.iter().filter(|it| it["status"] == status).count();
        assert_eq!((with_status("FILLED"), with_status("CANCELLED")), (10, 1), "{orders:?}");
        assert!(served.delayed().is_empty());
    })
    .await;
}

/// The same requests to servers that differ in one thing, and their answers without times.
fn answers_of_a_session(served: &Served) -> Vec<String> {
    let mut answers = Vec::new();
    let batch: Vec<_> = orders().into_iter().map(|(_, order, _)| order).collect();
    let batch = ("/v1/orders/batch", json!({"orders": batch}), 0);
    let refused = buy(&json!({"quantity": "5", "price": "0.37"}));
    let sale = ("/trade", trade("SELL", 7), 0);
    let requests = orders().into_iter().chain([batch, ("/v1/orders", refused, 0), sale]);
    for (number, (path, order, _)) in requests.enumerate() {
        let request = Request::post(path, &order).named(&number.to_string());
        let both = [&request; 2].map(|request| served.done(request.clone()));
        answers.extend(both.map(|answer| format!("{} {}", answer.status, answer.text)));
    }
    for path in ["/v1/orders", "/v1/account/balance", "/v1/account/positions"] {
        answers.push(served.done(Request::get(path)).text);
    }
    answers.iter().map(|answer| without_times(answer)).collect()
}

fn without_times(answer: &str) -> String {
    let is_time = |text: &str| text.len() >= 20 && text.starts_with("20") && text.ends_with('Z');
    answer
        .split('"')
        .map(|part| if is_time(part) { "TIME" } else { part })
        .collect::<Vec<_>>()
        .join("\"")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_delay_answers_are_those_of_a_market_that_has_none() {
    let mut sessions = Vec::new();
    for (delay, arguments) in [(Duration::ZERO, &[][..]), (LONG, &["--venue-delay", "off"])] {
        let venue = StandIn::start(world(delay), Options::default()).await;
        let session = tokio::task::spawn_blocking(move || {
            let session = |_| {
                let served = Served::start_with(&venue, arguments);
                served.until_fresh();
                let answers = answers_of_a_session(&served);
                let has_stale = answers.iter().any(|it| it.contains("VENUE_UNAVAILABLE"));
                (!has_stale).then_some(answers)
            };
            // On a busy machine, a server may be without fresh books for a moment.
            (0..20).find_map(session).expect("a session with fresh books throughout")
        });
        sessions.push(session.await.unwrap());
    }
    assert_eq!(sessions[0], sessions[1]);
    assert!(sessions[0].iter().all(|answer| !answer.contains("held_ms")));
    let filled = sessions[0].iter().filter(|answer| answer.contains("\"FILLED\"")).count();
    assert!(filled >= 12, "{sessions:?}");
}
