//! Brokers that have lost everything, and nodes that have not.

use std::fs;

use paperbourse_test_support::brokers::BROKERS;

use crate::copies::run_on_others_data;
use crate::load::Trader;
use crate::nodes::Nodes;
use crate::{check, cluster_on_brokers};

#[test]
fn a_log_that_the_brokers_have_lost_is_made_again_from_a_node() {
    let Some((folder, mut brokers, file)) = cluster_on_brokers("") else { return };
    let mut nodes = Nodes::start(folder.path(), &file, 2);
    let first = nodes.all_answer();
    let second = 1 - first;
    let addresses = nodes.addresses.clone();
    let trader = Trader::new(folder.path(), &addresses.lock().unwrap(), 0);
    (0..20).for_each(|number| trader.buy(&addresses, number));

    // What was answered is on the disk of the node that answered.
    (nodes.processes[first], nodes.processes[second]) = (None, None);
    for number in 0..BROKERS {
        brokers.kill(number);
        fs::remove_dir_all(brokers.store(number)).unwrap();
    }
    brokers.restart_all();
    let refused = |nodes: &Nodes, number| {
        let output = nodes.serve(number).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let repairs = "`paperbourse cluster repair`";
    let error = refused(&nodes, first);
    assert!(error.contains("pb-0 does not exist") && error.contains(repairs), "{error}");
    let from = nodes.data(first);
    let from = from.to_str().unwrap();
    let (_, error) = check(&["init", "--from", from], &file, 1);
    assert!(error.contains(repairs), "{error}");
    let (_, error) = check(&["repair", "--from", folder.path().to_str().unwrap()], &file, 1);
    assert!(error.contains("does not belong to a node of a cluster"), "{error}");

    // Also if it is interrupted, and run again.
    for _ in 0..2 {
        let (printed, _) = check(&["repair", "--from", from], &file, 0);
        assert!(printed.starts_with("the log continues after record "), "{printed}");
    }
    nodes.run(first);
    assert_eq!(nodes.owner(), first);
    (20..30).for_each(|number| trader.buy(&addresses, number));

    // The other one may lack records that the log does not have any more.
    let error = refused(&nodes, second);
    let is_behind = error.contains("the log continues older data up to record ");
    assert!(is_behind || error.contains("belongs to another log"), "{error}");
    fs::remove_dir_all(nodes.data(second)).unwrap();
    run_on_others_data(&mut nodes, second);
    nodes.processes[first] = None;
    assert_eq!(nodes.owner(), second);
    trader.check(addresses.lock().unwrap()[second]);
}
