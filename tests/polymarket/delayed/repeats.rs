//! Requests that are sent again while the first one waits, and afterwards.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeats_get_the_answer_of_the_order_that_waits() {
    play(LONG, &[], |venue, served| {
        let fine = Request::post("/trade", &trade("BUY", 5)).named("fine");
        let capped = buy(&json!({"quantity": "5", "price": ASK, "client_order_id": "capped"}));
        let capped = Request::post("/v1/orders", &capped);
        let batch = json!({"orders": [trade("BUY", 1), trade("BUY", 2)]});
        let batch = Request::post("/v1/orders/batch", &batch).named("batch");
        std::thread::scope(|scope| {
            let served = &served;
            let sent = [&fine, &capped, &batch];
            let firsts = sent.map(|request| served.begin(scope, request.clone()));
            served.until_delayed(4);
            let repeats = sent.map(|request| served.begin(scope, request.clone()));
            // The same order by the other path is a repeat too.
            let by_path = buy(&json!({"quantity": 5}));
            let by_path = Request::post("/v1/orders", &by_path).named("fine");
            let by_path = served.begin(scope, by_path);
            // Another order cannot have the name.
            let other = served.trade_named(&trade("BUY", 6), "fine").ok(409);
            assert_eq!(other["error"], "IDEMPOTENCY_KEY_REUSE");
            let other = buy(&json!({"quantity": "6", "client_order_id": "capped"}));
            served.done(Request::post("/v1/orders", &other)).ok(409);
            remove_best_ask(venue);
            served.until_ask(NEXT_ASK);
            assert_eq!(served.delayed().len(), 4, "this machine is too slow for the test");

            let firsts = firsts.map(|answer| answer.join().unwrap());
            let repeats = repeats.map(|answer| answer.join().unwrap());
            let [filled, refused, entries] = [0, 1, 2].map(|index| &firsts[index].response);
            let [filled_again, refused_again, entries_again] =
                [0, 1, 2].map(|index| &repeats[index].response);
            assert_eq!(millionths(&firsts[0].delayed(LONG)["price"]), micros(NEXT_ASK));
            assert!(!filled.is_replay() && filled_again.is_replay());
            assert_eq!(filled_again.text, filled.text);
            let by_path = by_path.join().unwrap().response.ok(200);
            assert_eq!(
                (&by_path["is_replay"], &by_path["order_id"]),
                (&json!(true), &filled.json()["order_id"])
            );
            for refused in [refused, refused_again] {
                assert_eq!(refused.ok(400)["error"], "FOK_ORDER_NOT_FILLED_ERROR");
            }
            assert_eq!(refused_again.text, refused.text);
            let (entries, entries_again) = (entries.ok(200), entries_again.ok(200));
            for (first, again) in
                (0..2).map(|index| (&entries["results"][index], &entries_again["results"][index]))
            {
                assert_eq!(
                    (&first["is_replay"], &again["is_replay"]),
                    (&json!(null), &json!(true))
                );
                assert_eq!(first["order_id"], again["order_id"]);
                assert!(delayed_ms(first) >= LONG.as_millis(), "{first}");
            }

            // The order that was refused is gone, and its name is free.
            assert_eq!(served.orders().len(), 3);
            let replay = served.done(fine.clone());
            assert!(replay.is_replay() && replay.text == filled.text);
            restore_best_ask(venue);
            served.until_ask(ASK);
            let third = served.begin(scope, capped.clone()).join().unwrap();
            assert!(!third.response.is_replay());
            let third = third.delayed(LONG);
            assert_eq!((&third["is_replay"], &third["price"]), (&json!(null), &json!(ASK)));
        });
        assert_eq!(served.orders().len(), 4);
    })
    .await;
}
