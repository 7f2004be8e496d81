//! Line plots as SVG with a logarithmic time axis, readable in light and dark themes.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;

/// The edges of the plotting area. The names of the series are on its right.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 664.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 372.0;

/// The minimum distance between names of series, so that they do not overlap.
const NAME_DISTANCE: f64 = 16.0;

/// The approximate number of marks on the x axis.
const X_MARKS: f64 = 6.0;

const STYLE: &str = "\
    text{font:13px system-ui,sans-serif;fill:#24292f}.paper{fill:#fff}\
    text.title{font-size:16px;font-weight:600}.grid{stroke:#d0d7de}.fine{stroke:#eaeef2}\
    .line{fill:none;stroke-width:2.5}.s0{stroke:#0969da}.s1{stroke:#bc4c00}.s2{stroke:#8250df}\
    .f0,text.f0{fill:#0969da}.f1,text.f1{fill:#bc4c00}.f2,text.f2{fill:#8250df}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117}\
    .grid{stroke:#3d444d}.fine{stroke:#21262d}.s0{stroke:#58a6ff}.s1{stroke:#f0883e}\
    .s2{stroke:#bc8cff}.f0,text.f0{fill:#58a6ff}.f1,text.f1{fill:#f0883e}\
    .f2,text.f2{fill:#bc8cff}}";

/// A plot of up to three series.
pub(crate) struct Plot {
    pub(crate) title: &'static str,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    pub(crate) series: Vec<Series>,
}

/// One line of the plot.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    /// The points from left to right: any x, and microseconds above 0.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A mapping of values to positions.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Scale {
    x_max: f64,
    /// The powers of ten that enclose all values.
    decades: (i32, i32),
}

impl Plot {
    /// Returns the text of the file.
    pub(crate) fn svg(&self) -> String {
        let points = self.series.iter().flat_map(|series| series.points.iter().copied());
        let scale = Scale::of(points);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"{}\">\n\
             <style>{STYLE}</style>\n\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"24\">{}</text>\n\
             <text x=\"{LEFT}\" y=\"43\">{}</text>\n\
             <text x=\"{RIGHT}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
            self.title,
            self.title,
            self.y_label,
            HEIGHT - 22.0,
            self.x_label
        );
        scale.write_axes(&mut out);
        for (index, series) in self.series.iter().enumerate() {
            let points = series.points.iter().map(|&(x, y)| (scale.x(x), scale.y(y)));
            let path: String = points.clone().fold(String::new(), |mut path, (x, y)| {
                let _ = write!(path, "{x:.1},{y:.1} ");
                path
            });
            let path = path.trim_end();
            let _ = writeln!(out, "<polyline class=\"line s{index}\" points=\"{path}\"/>");
            for (x, y) in points {
                let _ = writeln!(
                    out,
                    "<circle class=\"f{index}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"
                );
            }
        }
        self.write_names(&mut out, scale);
        out.push_str("</svg>\n");
        out
    }

    /// Writes the name of each series at its end, from the lowest line up. A name that would
    /// overlap the one below is moved up.
    fn write_names(&self, out: &mut String, scale: Scale) {
        let ends = self.series.iter().map(|series| series.points.last());
        let mut names: Vec<(usize, f64)> = ends
            .enumerate()
            .filter_map(|(index, point)| Some((index, scale.y(point?.1))))
            .collect();
        names.sort_by(|left, right| right.1.total_cmp(&left.1));
        let mut above = f64::INFINITY;
        for (index, y) in names {
            above = y.min(above - NAME_DISTANCE);
            let (x, y) = (RIGHT + 10.0, above + 4.0);
            let name = self.series[index].name;
            let _ = writeln!(out, "<text class=\"f{index}\" x=\"{x}\" y=\"{y:.1}\">{name}</text>");
        }
    }
}

impl Scale {
    /// Returns a scale that fits all of these points.
    #[expect(clippy::cast_possible_truncation, reason = "the powers of ten of a time are few")]
    fn of(points: impl Iterator<Item = (f64, f64)>) -> Self {
        let (mut x_max, mut lowest, mut highest) = (0.0_f64, f64::INFINITY, 0.0_f64);
        for (x, y) in points {
            x_max = x_max.max(x);
            if y > 0.0 {
                (lowest, highest) = (lowest.min(y), highest.max(y));
            }
        }
        if highest == 0.0 {
            return Self { x_max: 1.0, decades: (0, 1) };
        }
        let first = lowest.log10().floor() as i32;
        let last = highest.log10().ceil() as i32;
        Self { x_max: x_max.max(1.0), decades: (first, last.max(first + 1)) }
    }

    fn x(self, value: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * value / self.x_max
    }

    /// Returns the position of a value. Values below the lowest power of ten, and NaN, are drawn on
    /// the axis.
    fn y(self, value: f64) -> f64 {
        let (first, last) = self.decades;
        let part = (value.log10() - f64::from(first)) / f64::from(last - first);
        BOTTOM - (BOTTOM - TOP) * if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }

    fn write_axes(self, out: &mut String) {
        let line = |class: &str, from: (f64, f64), to: (f64, f64)| {
            let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1];
            format!(
                "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" \
                 y2=\"{y2:.1}\"/>\n"
            )
        };
        let (first, last) = self.decades;
        for power in first..=last {
            let decade = 10_f64.powi(power);
            for step in 2..10 {
                let y = self.y(decade * f64::from(step));
                if power < last {
                    out.push_str(&line("fine", (LEFT, y), (RIGHT, y)));
                }
            }
            let y = self.y(decade);
            out.push_str(&line("grid", (LEFT, y), (RIGHT, y)));
            let (x, y, time) = (LEFT - 8.0, y + 4.0, time(decade));
            let _ = writeln!(out, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{time}</text>");
        }
        let step = round_step(self.x_max / X_MARKS);
        let mut mark = 0.0;
        while mark <= self.x_max {
            let x = self.x(mark);
            out.push_str(&line("grid", (x, TOP), (x, BOTTOM)));
            let y = BOTTOM + 20.0;
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
                thousands(mark)
            );
            mark += step;
        }
    }
}

/// Returns the smallest 1, 2 or 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let decade = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
    // The tolerance allows for inexact powers.
    steps.into_iter().find(|step| *step >= least * 0.999_999).unwrap_or(decade * 10.0)
}

fn time(microseconds: f64) -> String {
    match microseconds {
        ..1e3 => format!("{microseconds} µs"),
        ..1e6 => format!("{} ms", microseconds / 1e3),
        _ => format!("{} s", microseconds / 1e6),
    }
}

fn thousands(value: f64) -> String {
    if value >= 1000.0 { format!("{}k", value / 1000.0) } else { format!("{value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_encloses_all_values() {
        for (points, expected) in [
            (&[(1000.0, 150.0), (9000.0, 4200.0)][..], (9000.0, (2, 4))),
            (&[(10.0, 100.0)], (10.0, (2, 3))),
            (&[(10.0, f64::NAN), (20.0, 30.0)], (20.0, (1, 2))),
            (&[], (1.0, (0, 1))),
        ] {
            let (x_max, decades) = expected;
            assert_eq!(Scale::of(points.iter().copied()), Scale { x_max, decades });
        }
    }

    #[test]
    fn equal_factors_have_equal_distances() {
        let scale = Scale { x_max: 200.0, decades: (1, 4) };
        let near = |left: f64, right: f64| (left - right).abs() < 1e-9;
        assert!(near(scale.y(10.0), BOTTOM) && near(scale.y(10_000.0), TOP));
        assert!(near(scale.y(100.0) - scale.y(1000.0), scale.y(10.0) - scale.y(100.0)));
        assert!(near(scale.x(0.0), LEFT) && near(scale.x(200.0), RIGHT));
        assert!(near(scale.y(f64::NAN), BOTTOM) && near(scale.y(1e9), TOP));
    }

    #[test]
    fn marks_are_round_numbers() {
        for (least, step) in [(0.8, 1.0), (1.0, 1.0), (1.1, 2.0), (2300.0, 5000.0), (6e4, 1e5)] {
            assert!((round_step(least) / step - 1.0).abs() < 1e-9, "{least}");
        }
        assert_eq!([1e2, 1e3, 1e6].map(time), ["100 µs", "1 ms", "1 s"]);
        assert_eq!([0.0, 500.0, 20_000.0].map(thousands), ["0", "500", "20k"]);
    }

    #[test]
    fn names_do_not_cover_each_other() {
        let series = ["p50", "p99", "p99.9"]
            .map(|name| Series { name, points: vec![(1.0, 100.0), (2.0, 100.0)] });
        let plot = Plot { title: "t", x_label: "x", y_label: "y", series: series.into() };
        let svg = plot.svg();
        let places: Vec<f64> = svg
            .lines()
            .filter(|line| line.starts_with("<text class=\"f"))
            .filter_map(|line| line.split_once("y=\"")?.1.split_once('"')?.0.parse().ok())
            .collect();
        assert_eq!(places.len(), 3, "{svg}");
        assert!(places.windows(2).all(|pair| pair[0] - pair[1] >= NAME_DISTANCE - 0.1));
    }
}
