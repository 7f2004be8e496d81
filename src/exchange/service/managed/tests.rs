//! An operator acts on an account while the queue of another shard is full.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::AtomicI64;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;

use super::*;
use crate::auth::identity::embedded::EmbeddedIssuer;
use crate::service::Parts;
use paperbourse_core::engine::admin::standing::Operator;
use paperbourse_core::engine::command::{Identity, OpenAccount};
use paperbourse_core::engine::state::view::Observed;
use paperbourse_core::ids::Lsn;

#[tokio::test(start_paused = true)]
async fn a_suspension_waits_for_a_shard_with_a_full_queue() {
    let issuer = EmbeddedIssuer::in_memory().unwrap();
    let (parts, journal) = Parts::in_memory(issuer, Arc::new(AtomicI64::new(1)));
    let service = Arc::new(Service::new(parts));
    let waiters = journal.register();
    tokio::spawn({
        let waiters = waiters.clone();
        async move { waiters.run().await }
    });
    let identity = Identity { digest: [0; 32], issuer: "issuer".into(), subject: "bot".into() };
    let home = identity.shard();
    let account = service.shards.execute(home, OpenAccount(identity), &waiters).await.unwrap();

    let shard = ShardId::all().find(|shard| *shard != home).unwrap();
    let (start, started) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let holder = thread::spawn({
        let (runtime, shards, waiters) =
            (Handle::current(), service.shards.clone(), waiters.clone());
        move || {
            let _entered = runtime.enter();
            let hold = move |_: &State| {
                start.send(()).unwrap();
                released.recv().unwrap();
                Observed { value: (), lsn: Lsn::START }
            };
            let mut held = Box::pin(shards.observe(shard, &waiters, hold));
            let _ = held.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    });
    started.recv().unwrap();
    let mut reads = Vec::new();
    loop {
        let nothing = |_: &State| Observed { value: (), lsn: Lsn::START };
        let mut read = Box::pin(service.shards.observe(shard, &waiters, nothing));
        match polled(read.as_mut()).await {
            Poll::Pending => reads.push(read),
            Poll::Ready(refused) => {
                assert_eq!(refused, Err(Refusal::Busy));
                break;
            }
        }
    }

    let by = Operator { uid: 0, user: None };
    let command = OperatorCommand { account, act: Act::Suspend, by, reason: "a test".into() };
    let suspended = tokio::spawn({
        let (service, waiters) = (service.clone(), waiters.clone());
        async move { service.act(command, &waiters).await }
    });
    // The clock only goes on once nothing else can.
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!suspended.is_finished(), "the shard may still have comments of the account to write");
    release.send(()).unwrap();
    holder.join().unwrap();
    assert!(suspended.await.unwrap().unwrap().is_new);
}

async fn polled<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}
