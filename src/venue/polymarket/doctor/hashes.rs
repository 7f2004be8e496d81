//! Assumptions about the venue's hashes of books.

use super::assumption::{Assumption, RestsOn, Tally};
use super::books::{Judged, Subject};
use super::seen::{Observation, Origin, Source};

/// Returns the assumptions of this module.
pub(super) fn all() -> Vec<Box<dyn Assumption>> {
    let mut all: Vec<Box<dyn Assumption>> = vec![Box::new(BooksReadable)];
    for subject in [Subject::Requested, Subject::Socket] {
        for is_v2 in [false, true] {
            all.push(Box::new(Hashes { subject, is_v2 }));
        }
    }
    all.push(Box::new(GroupHashes));
    all
}

/// Assumes that requested books can be read.
struct BooksReadable;

impl Assumption for BooksReadable {
    fn name(&self) -> &'static str {
        "requested books can be read"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        match seen {
            Observation::Unreadable { what: Source::Book, problem, origin } => {
                tally.breaks(problem, *origin);
            }
            Observation::Book { book, origin, .. } => match book {
                Ok(_) => tally.holds(),
                Err(error) => tally.breaks(error, *origin),
            },
            _ => {}
        }
    }
}

/// Assumes that hashes match the books that they describe.
struct Hashes {
    subject: Subject,
    is_v2: bool,
}

impl Assumption for Hashes {
    fn name(&self) -> &'static str {
        match (self.subject, self.is_v2) {
            (Subject::Requested, false) => "V1: hashes match requested books",
            (Subject::Requested, true) => "V2: hashes match requested books",
            (Subject::Socket, false) => "V1: hashes match the socket's books",
            (Subject::Socket, true) => "V2: hashes match the socket's books",
        }
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Observation::Judged(Judged::Hash { subject, is_v2, neg_risk, is_proven, text }) = seen
        else {
            return;
        };
        if (*subject, *is_v2) != (self.subject, self.is_v2) {
            return;
        }
        let kind = if *neg_risk { "of several markets" } else { "of two outcomes" };
        if *is_proven {
            tally.holds_with(kind);
        } else {
            let request = if self.subject == Subject::Requested { "/books" } else { "" };
            tally.breaks(format!("no match, {kind}"), Origin { request, payload: text });
        }
    }
}

/// Assumes that frames with the same timestamp carry either their own hashes or that of the last
/// book.
struct GroupHashes;

impl Assumption for GroupHashes {
    fn name(&self) -> &'static str {
        "a match carries its last book's hash"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        match seen {
            Observation::Judged(Judged::Group { is_own: true, .. }) => {
                tally.holds_with("each its own");
            }
            Observation::Judged(Judged::Group { is_proven: true, .. }) => {
                tally.holds_with("the last book's");
            }
            Observation::Judged(Judged::Group { text, .. }) => {
                let problem = "a hash of no book of the group";
                tally.breaks(problem, Origin { request: "", payload: text });
            }
            _ => {}
        }
    }
}
