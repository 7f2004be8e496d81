//! Assumptions about reaching the services and about our requests.

use std::collections::BTreeMap;

use super::assumption::{Assumption, RestsOn, Tally, Verdict};
use super::seen::{Asked, Failure, Observation, Origin, Service};

/// Returns the assumptions of this module.
pub(super) fn all() -> Vec<Box<dyn Assumption>> {
    let answers = [Service::Gamma, Service::Clob, Service::Data, Service::Socket].map(Answers);
    let mut all: Vec<Box<dyn Assumption>> = Vec::new();
    all.extend(answers.map(|it| Box::new(it) as Box<dyn Assumption>));
    all.push(Box::new(Understood::default()));
    all.push(Box::new(RateLimits));
    all
}

/// The meaning of an error status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// The request is wrong, or its path no longer exists.
    Misunderstood,
    /// There were too many requests.
    RateLimited,
    /// The service is down, or denies us access.
    Closed,
}

fn refusal(status: u16) -> Refusal {
    match status {
        429 => Refusal::RateLimited,
        // 403: the edge takes us for a robot; 425: the matching engine restarts; 451: legal
        // reasons.
        403 | 425 | 451 | 500.. => Refusal::Closed,
        _ => Refusal::Misunderstood,
    }
}

/// Assumes that the service answers.
struct Answers(Service);

impl Assumption for Answers {
    fn name(&self) -> &'static str {
        match self.0 {
            Service::Gamma => "Gamma answers",
            Service::Clob => "the CLOB service answers",
            Service::Data => "the data API answers",
            Service::Socket => "the market socket opens",
        }
    }

    fn rests_on(&self) -> RestsOn {
        if self.0 == Service::Data { RestsOn::Payouts } else { RestsOn::Fills }
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        match seen {
            Observation::Answered(answered) if answered.service == self.0 => tally.holds(),
            Observation::Opened { .. } if self.0 == Service::Socket => tally.holds(),
            Observation::Failed { service, failure, .. } if *service == self.0 => match failure {
                Failure::Unreachable(reason) => tally.breaks(reason, Origin::NONE),
                Failure::Status(status) => match refusal(*status) {
                    Refusal::Closed => tally.breaks(format!("status {status}"), Origin::NONE),
                    // The service does answer, although it refuses this request.
                    Refusal::Misunderstood | Refusal::RateLimited => tally.holds(),
                },
            },
            _ => {}
        }
    }

    fn is_about_reaching(&self) -> bool {
        true
    }

    /// A single lost request says nothing about the venue, so up to a tenth of the requests may
    /// fail.
    fn verdict(&self, tally: &Tally) -> Verdict {
        match tally.seen() {
            0 => Verdict::NotSeen,
            seen if tally.broken() * 10 > seen => Verdict::Broken,
            _ => Verdict::Ok,
        }
    }
}

/// Assumes that requests have the form that the services expect.
#[derive(Default)]
struct Understood {
    /// Numbers of answered and of refused requests, by kind of request.
    kinds: BTreeMap<&'static str, [u64; 2]>,
}

impl Assumption for Understood {
    fn name(&self) -> &'static str {
        "requests are understood"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        match seen {
            Observation::Answered(answered) => {
                self.kinds.entry(request_name(&answered.asked)).or_default()[0] += 1;
                tally.holds();
            }
            Observation::Failed { service, asked, failure: Failure::Status(status) }
                if refusal(*status) == Refusal::Misunderstood =>
            {
                let name = asked.as_ref().map_or("the upgrade", request_name);
                if matches!(asked, Some(Asked::Markets { is_optional: true })) {
                    tally.note(format!("{name}: {service} says {status}"));
                } else {
                    self.kinds.entry(name).or_default()[1] += 1;
                    tally.breaks(format!("{name}: {service} says {status}"), Origin::NONE);
                }
            }
            _ => {}
        }
    }

    /// The CLOB service lacks a market for some minutes after Gamma lists it, so refused requests
    /// of one kind are ignored while more requests of that kind are answered.
    fn verdict(&self, tally: &Tally) -> Verdict {
        match tally.verdict() {
            Verdict::Broken if self.kinds.values().all(|[held, refused]| held > refused) => {
                Verdict::Ok
            }
            verdict => verdict,
        }
    }
}

fn request_name(asked: &Asked) -> &'static str {
    match asked {
        Asked::Time => "the time",
        Asked::Page { .. } => "a page of markets",
        Asked::Markets { .. } => "markets",
        Asked::Compact => "a compact description",
        Asked::Long => "a long description",
        Asked::Books => "books",
        Asked::Resolution => "a resolution",
    }
}

/// Assumes that requests stay within the rate limits.
struct RateLimits;

impl Assumption for RateLimits {
    fn name(&self) -> &'static str {
        "requests stay within the rate limits"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Nothing
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        match seen {
            Observation::Answered(answered) => {
                tally.holds();
                for (name, value) in &answered.headers.rate_limits {
                    tally.note(format!("{name}: {value}"));
                }
            }
            Observation::Failed { service, failure: Failure::Status(status), .. }
                if refusal(*status) == Refusal::RateLimited =>
            {
                tally.breaks(format!("{service} says {status}"), Origin::NONE);
            }
            _ => {}
        }
    }
}
