//! Places in scratch for a tape's values, and stores joined with the instructions before them.
//!
//! A register is a block in scratch, free again after its value's last use, so that a long tape stays in the first-level
//! cache. A value made before a pass and used in it lives to the pass's end, which is a loop.

use super::Mode;
use super::compile::{Home, Sections, row_section};
use super::domain::Domain;
use super::step::{Place, Program, Step, Sum, Value};
use super::walk::{Load, Target};

/// Completes a program from its sections.
///
/// `scratch` bytes are taken already; `widest` is the most bytes that an element of a register has.
pub fn assign(
    mut program: Program,
    mut sections: Sections,
    mut scratch: usize,
    widest: usize,
    domain: &Domain,
    passes: usize,
) -> Program {
    for pass in 0..passes {
        let section = row_section(pass) + 1;
        join_stores(&program, &mut sections, section, section);
    }
    join_stores(&program, &mut sections, row_section(passes - 1), row_section(passes));

    let mut fixed: Vec<Option<usize>> = vec![None; sections.homes.len()];
    for (value, home) in sections.homes.iter().enumerate() {
        if *home == Home::Slot {
            fixed[value] = Some(scratch);
            scratch += 8;
        }
    }
    scratch = scratch.next_multiple_of(64);

    // Not a power of two: registers would share the few lines of a cache set.
    let register = program.block * widest + 64;
    let last_use = last_uses(&sections, passes);
    let mut free: Vec<usize> = vec![];
    let mut held: Vec<(usize, usize)> = vec![];
    let mut at = 0;
    for steps in &mut sections.steps {
        for step in steps {
            held.retain(|&(until, place)| {
                let dead = until < at;
                if dead {
                    free.push(place);
                }
                !dead
            });
            let mut take = || {
                free.pop().unwrap_or_else(|| {
                    scratch += register;
                    scratch - register
                })
            };
            if let Step::ApplyOut { spare, .. } = step {
                *spare = take();
                held.push((at, *spare));
            } else if let Some(value) = step.defines()
                && sections.homes[value as usize] == Home::Register
                && fixed[value as usize].is_none()
            {
                let place = take();
                fixed[value as usize] = Some(place);
                held.push((last_use[value as usize].max(at), place));
            }
            at += 1;
        }
    }

    program.fixed.extend(fixed.iter().enumerate().filter_map(|(v, place)| place.map(|p| (v as Value, p))));
    program.table = scratch.next_multiple_of(64);
    program.scratch = program.table + 8 * sections.homes.len();
    let mut steps = sections.steps.into_iter();
    let mut next = || steps.next().unwrap_or_default();
    program.chunk = next();
    program.outer = next();
    for _ in 0..passes {
        program.rows.push(next());
        program.terms.push(next());
    }
    program.last = next();
    program.sums = program.terms.iter().map(|t| plain_sum(t, domain)).collect();
    program
}

/// What a pass comes to when it only reduces a load over one axis.
fn plain_sum(steps: &[Step], domain: &Domain) -> Option<Sum> {
    let [Step::Point { value, place, .. }, Step::Reduce { accumulator, value: reduced }] = steps else {
        return None;
    };
    if value != reduced || domain.mode == Mode::Row || domain.extents.len() != domain.parallel + 1 {
        return None;
    }
    let axis = domain.parallel;
    let stride = place.outer.iter().find(|(a, _)| *a as usize == axis)?.1;
    Some(Sum { accumulator: *accumulator, place: place.clone(), axis, stride })
}

/// For each value, the position of its last use, in steps over all sections.
fn last_uses(sections: &Sections, passes: usize) -> Vec<usize> {
    let mut starts = vec![0];
    for steps in &sections.steps {
        starts.push(starts[starts.len() - 1] + steps.len());
    }
    let mut defined_in = vec![usize::MAX; sections.homes.len()];
    let mut last = vec![0; sections.homes.len()];
    for (s, steps) in sections.steps.iter().enumerate() {
        let is_loop = s % 2 == 1 && s > 1 && s < row_section(passes);
        for (i, step) in steps.iter().enumerate() {
            for value in step.uses() {
                let from_before = defined_in[value as usize] != s;
                let until = if is_loop && from_before { starts[s + 1] } else { starts[s] + i };
                last[value as usize] = last[value as usize].max(until);
            }
            if let Some(value) = step.defines() {
                defined_in[value as usize] = s;
            }
        }
    }
    last
}

/// Joins the stores at the end of section `at` with the instructions of section `from` that make what they store.
///
/// Not where a later step of the section still reads a load of the same elements: the store may have its place.
fn join_stores(program: &Program, sections: &mut Sections, from: usize, at: usize) {
    let mut joined = vec![];
    for (i, step) in sections.steps[at].clone().iter().enumerate() {
        let Step::Store { value, target, scalar: false } = *step else { continue };
        let place = &program.targets[target as usize];
        if place.place.step != Some(1) || sections.homes[value as usize] != Home::Register {
            continue;
        }
        let made = |s: &Step| matches!(s, Step::Apply { value: v, scalar: false, .. } if *v == value);
        let Some(k) = sections.steps[from].iter().position(made) else { continue };
        let later = sections.steps[from][k + 1..].iter();
        let later = later.chain(if from == at { &[][..] } else { &sections.steps[at][..] });
        if later.clone().any(|s| reads_place(program, sections, s, place)) {
            continue;
        }
        let Step::Apply { f, args, .. } = sections.steps[from][k] else { continue };
        let (size, spare) = (place.size, 0);
        let place = Place::new(place.buffer, &place.place, size);
        sections.steps[from][k] = Step::ApplyOut { f, value, args, place, size, spare };
        sections.homes[value as usize] = Home::Moving;
        joined.push(i);
    }
    let mut i = 0;
    sections.steps[at].retain(|_| {
        i += 1;
        !joined.contains(&(i - 1))
    });
}

/// Whether a step reads, directly or through a pointer, a load of the elements that a target names.
fn reads_place(program: &Program, sections: &Sections, step: &Step, target: &Target) -> bool {
    let same = |load: &Load| load.place == target.place;
    if let Step::Gather { load, .. } = step {
        return same(&program.loads[*load as usize]);
    }
    let pointed = |value: Value| {
        sections.steps.iter().flatten().any(
            |s| matches!(s, Step::Point { value: v, load, .. } if *v == value && same(&program.loads[*load as usize])),
        )
    };
    step.uses().into_iter().any(pointed)
}
