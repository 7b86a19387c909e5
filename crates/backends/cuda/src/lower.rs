//! A schedule and its plan as [`Code`]: kernels become launches, buffers become addresses.
//!
//! The iterations of a scan are steps like others: the body is lowered once, over addresses of its own buffers, and repeated
//! with the places that these have in each iteration.

use crate::branches::{self, Unit, Use};
use crate::code::{Address, Code, Launch, NAME, Product, Space, Step, THREADS};
use crate::error::CudaError;
use crate::library::gemv::Group;
use crate::library::{self, Context};
use crate::render::split::split;
use crate::render::{ALIGNED, Buffers, Part, parts_with, scalar};
use crate::target::CudaTarget;
use crate::within::{self, NOWHERE, Within};
use onestep_ir::DType;
use onestep_passes::indices;
use onestep_passes::plan::{Place, Plan};
use onestep_passes::schedule::{
    BufferId, BufferKind, Kernel, LoopKernel, MatmulKernel, ScanKernel, Schedule, View,
};
use std::collections::{BTreeSet, HashMap};

/// Parameters of a launch, at most: 8 bytes each of the 4096 that every device takes.
const MOST_PARAMETERS: usize = 448;

/// Lowers a schedule for a target. `vendor` says which products the vendor's library takes; the others get a kernel of this crate, as
/// do those that it makes as fast.
pub fn lower(
    schedule: &Schedule,
    plan: &Plan,
    target: &CudaTarget,
    vendor: &dyn Fn(&Product) -> bool,
) -> Result<Code, CudaError> {
    let mut code = Code::new(plan.arena_bytes);
    let mut inputs = vec![];
    for (_, b) in &schedule.inputs {
        inputs.push(Address { space: Space::Inputs, offset: code.input_bytes });
        code.input_bytes = (code.input_bytes + schedule.buffer(*b).bytes()).next_multiple_of(256);
    }
    let state = |n| Address { space: Space::State(n), offset: 0 };
    let arena = Address { space: Space::Arena, offset: 0 };
    let homes = homes(schedule, plan, &mut code, &|n| inputs[n], &state, arena)?;
    code.homes = homes.clone();
    code.labels = schedule.kernels.iter().map(label).collect();
    let tf32 = schedule.allow_tf32;
    let within = within::find(schedule, &homes);
    let copied: BTreeSet<usize> = within.values().map(|w| w.copy).collect();
    let (mut out, mut own) = (vec![], Lowering { code, target, vendor, tf32, body: vec![], within: &within });
    let flag = indices::flag(schedule);
    let (mut number, mut groups) = (0, vec![]);
    while number < schedule.kernels.len() {
        let at = |e| CudaError::Kernel { kernel: number, source: Box::new(e) };
        let group = schedule.beside(number);
        let kernels = &schedule.kernels[number..group.end];
        let together = number == group.start
            && kernels.len() > 1
            && own.together(kernels, schedule, &homes, &mut out).map_err(at)?;
        if !together && !copied.contains(&number) {
            own.kernel(&schedule.kernels[number], schedule, &homes, &mut out).map_err(at)?;
        }
        let taken = if together { kernels } else { &kernels[..1] };
        if let Some(flag) = flag.filter(|flag| taken.iter().any(|k| k.writes().contains(flag))) {
            out.push(own.code.launch(library::notice::notice(homes[flag.index()])));
        }
        for step in out.drain(..) {
            own.code.push(number, step)?;
        }
        groups.push(taken.len());
        number += taken.len();
    }
    for step in commits(schedule, plan, &homes, &state) {
        own.code.push(schedule.kernels.len(), step)?;
    }
    own.code.branches = branches::deal(&units(schedule, &own.code, &groups, own.within.values()));
    Ok(own.code)
}

/// Lowers a schedule without a device: as for one whose library takes every product of floats that it may.
pub fn lower_offline(schedule: &Schedule, plan: &Plan) -> Result<Code, CudaError> {
    lower(schedule, plan, &CudaTarget::HOPPER, &|p| p.dtype != DType::F64)
}

/// Rows and columns that a block of the vendor's library takes of a product, about.
const TILE: usize = 128;

/// The kernels, and the copies of new state as one more, with the memory that they use. `groups` are the numbers of kernels
/// that share launches, in order; the first of each has the launch, and so uses what the others do. So does one that stores its
/// result within a larger tensor, for what would copy it there.
fn units<'a>(
    schedule: &Schedule,
    code: &Code,
    groups: &[usize],
    within: impl Iterator<Item = &'a Within>,
) -> Vec<Unit> {
    let of = |&b: &BufferId, writes: bool| {
        let (home, bytes) = (code.homes[b.index()], schedule.buffer(b).bytes());
        Use { space: home.space, start: home.offset, end: home.offset + bytes, writes }
    };
    let mut units: Vec<Unit> = vec![];
    for kernel in &schedule.kernels {
        let (reads, writes) = (kernel.reads(), kernel.writes());
        let uses = reads.iter().map(|b| of(b, false)).chain(writes.iter().map(|b| of(b, true)));
        units.push(Unit { uses: uses.collect(), blocks: 0 });
    }
    let commits = units.len();
    if code.steps.last().is_some_and(|(at, _)| *at == commits) {
        units.push(Unit::default());
    }
    for w in within {
        let uses = std::mem::take(&mut units[w.copy].uses);
        units[w.writer].uses.extend(uses);
    }
    let mut first = 0;
    for &count in groups {
        let shared: Vec<Use> = units[first..first + count].iter().flat_map(|u| u.uses.clone()).collect();
        units[first].uses = shared;
        first += count;
    }
    for (at, step) in &code.steps {
        match step {
            Step::Launch { grid, .. } => units[*at].blocks = units[*at].blocks.max(*grid as usize),
            Step::Product(p) => {
                let [batch, rows, columns, _] = p.sizes;
                let tiles = batch * rows.div_ceil(TILE) * columns.div_ceil(TILE);
                units[*at].blocks = units[*at].blocks.max(tiles);
                // Products share the library's workspace.
                units[*at].uses.push(Use { space: Space::Scratch, start: 0, end: 1, writes: true });
            }
            Step::Copy { from, to, bytes } if *at == commits => {
                let range = |a: &Address, writes| Use {
                    space: a.space,
                    start: a.offset,
                    end: a.offset + bytes,
                    writes,
                };
                units[*at].uses.extend([range(from, false), range(to, true)]);
            }
            Step::Copy { .. } => {}
        }
    }
    units
}

/// Where a plan puts every buffer, given where inputs, states and arena are.
fn homes(
    schedule: &Schedule,
    plan: &Plan,
    code: &mut Code,
    input: &dyn Fn(usize) -> Address,
    state: &dyn Fn(usize) -> Address,
    arena: Address,
) -> Result<Vec<Address>, CudaError> {
    let pairs = schedule.buffers.iter().zip(&plan.places);
    pairs
        .map(|(buffer, place)| match (*place, &buffer.kind) {
            (Place::Input(n), _) => Ok(input(n)),
            (Place::State(n), _) => Ok(state(n)),
            (Place::Arena(offset), _) => Ok(arena.plus(offset)),
            (Place::Constant, BufferKind::Constant(array)) => Ok(code.constant(array.bytes())),
            (Place::Constant, _) => {
                let why = format!("the constant '{}' has no value", buffer.name);
                Err(CudaError::Operand { what: "a buffer", why })
            }
        })
        .collect()
}

/// The copies of new state that was computed elsewhere.
fn commits(
    schedule: &Schedule,
    plan: &Plan,
    homes: &[Address],
    state: &dyn Fn(usize) -> Address,
) -> Vec<Step> {
    let copy = |&(b, n): &(BufferId, usize)| Step::Copy {
        from: homes[b.index()],
        to: state(n),
        bytes: schedule.buffer(b).bytes(),
    };
    plan.commits.iter().map(copy).filter(|s| !matches!(s, Step::Copy { bytes: 0, .. })).collect()
}

/// What is known of the buffers of loop kernels, those between the pieces of long rows included.
#[derive(Clone, Copy)]
struct Known<'a> {
    homes: &'a [Address],
    dtypes: &'a [DType],
    within: &'a HashMap<BufferId, Within>,
}

struct Lowering<'a> {
    code: Code,
    target: &'a CudaTarget,
    vendor: &'a dyn Fn(&Product) -> bool,
    /// Whether the library's products of `f32` may be in TF32.
    tf32: bool,
    /// Bytes of which the places of the buffers of a scan's body are multiples, while that is lowered.
    body: Vec<usize>,
    /// Results that go within larger tensors.
    within: &'a HashMap<BufferId, Within>,
}

impl Lowering<'_> {
    /// The steps of a kernel.
    fn kernel(
        &mut self,
        kernel: &Kernel,
        schedule: &Schedule,
        homes: &[Address],
        out: &mut Vec<Step>,
    ) -> Result<(), CudaError> {
        // Those of a scan's body stay where they are.
        let within = if self.body.is_empty() { self.within } else { &NOWHERE };
        let context = Context { schedule, homes, within };
        let launches = match kernel {
            Kernel::Loops(parts) => return self.loops(parts, &context, out),
            Kernel::Scan(s) => return self.scan(s, &context, out),
            Kernel::Matmul(m) => return self.product(m, &context, out),
            Kernel::Library(l) => library::compile(l, &context)?,
        };
        self.launches(launches, out);
        Ok(())
    }

    /// Kernels that run together, as one launch of products of few rows and what follows the last of them; `false` where they
    /// cannot. The launch counts for the first of them.
    fn together(
        &mut self,
        kernels: &[Kernel],
        schedule: &Schedule,
        homes: &[Address],
        out: &mut Vec<Step>,
    ) -> Result<bool, CudaError> {
        let context = Context { schedule, homes, within: self.within };
        let Some(all) = library::gemv::together(schedule, kernels).filter(|t| t.len() == kernels.len())
        else {
            return Ok(false);
        };
        let product = |m: &&MatmulKernel| library::matmul::product(m, &context);
        let products = all.products.iter().map(product).collect::<Result<Vec<Product>, CudaError>>()?;
        if !products.iter().all(library::gemv::takes) {
            return Ok(false);
        }
        let group = Group {
            products: &products,
            outs: all.products.iter().map(|m| m.out).collect(),
            before: all.before,
            epilogue: all.fused(),
            fixed: products.iter().all(|p| is_fixed(schedule, p.rhs.0)),
        };
        self.launches(library::gemv::compile(&group, &context)?.into(), out);
        self.loops(all.afterwards().map_or(&[], std::slice::from_ref), &context, out)?;
        Ok(true)
    }

    fn launches(&mut self, launches: library::Launches, out: &mut Vec<Step>) {
        self.code.scratch_bytes = self.code.scratch_bytes.max(launches.scratch_bytes);
        out.extend(launches.list.into_iter().map(|l| self.code.launch(l)));
    }

    /// Loop kernels that do not depend on each other: one launch, and a second one for those whose rows are long.
    fn loops(
        &mut self,
        parts: &[LoopKernel],
        context: &Context<'_>,
        out: &mut Vec<Step>,
    ) -> Result<(), CudaError> {
        let buffers = &context.schedule.buffers;
        let mut homes = context.homes.to_vec();
        let mut dtypes: Vec<DType> = buffers.iter().map(|b| b.dtype).collect();
        let (mut first, mut second, mut scratch) = (vec![], vec![], 0usize);
        for part in parts {
            if let Some(copy) = library::transposition::compile(part, context, &|a| self.aligned(a)) {
                out.push(self.code.launch(copy));
                continue;
            }
            let Some(cut) = split(part, homes.len() as u32) else {
                first.push(Part::from(part.clone()));
                continue;
            };
            for (dtype, elements) in cut.between {
                homes.push(Address { space: Space::Scratch, offset: scratch });
                dtypes.push(dtype);
                scratch = (scratch + elements * dtype.size()).next_multiple_of(256);
            }
            first.push(cut.pieces);
            second.push(Part::from(cut.rest));
        }
        self.code.scratch_bytes = self.code.scratch_bytes.max(scratch);
        let known = Known { homes: &homes, dtypes: &dtypes, within: context.within };
        self.grouped(&first, &known, out)?;
        self.grouped(&second, &known, out)
    }

    /// Loop kernels as one launch, unless they have too many buffers for one.
    fn grouped(&mut self, parts: &[Part], known: &Known<'_>, out: &mut Vec<Step>) -> Result<(), CudaError> {
        let Known { homes, dtypes, within } = *known;
        let aligned = |b: BufferId| {
            let own = self.aligned(homes[b.index()]);
            let larger = within.get(&b).map(|w| w.aligned(dtypes[b.index()]));
            larger.map_or(own, |larger| own.min(larger))
        };
        let buffers = Buffers { dtype: &|b| dtypes[b.index()], aligned: &aligned };
        let more = |b: BufferId, pointer: &str| {
            let element = scalar::storage(dtypes[b.index()]);
            within.get(&b).map(|w| w.more(pointer, element))
        };
        let (mut start, mut launches) = (0, vec![]);
        while start < parts.len() {
            let mut named = BTreeSet::new();
            let mut end = start;
            while let Some(Part { kernel, .. }) = parts.get(end) {
                named.extend(kernel.reads().into_iter().chain(kernel.writes()));
                let parameters = named.len() + 2 * named.iter().filter(|b| within.contains_key(b)).count();
                if parameters > MOST_PARAMETERS && end > start {
                    break;
                }
                end += 1;
            }
            let rendered = parts_with(&parts[start..end], buffers, NAME, &more)?;
            let places = |b: &BufferId| {
                let larger = within.get(b).map_or(vec![], |w| vec![w.larger, w.start]);
                std::iter::once(homes[b.index()]).chain(larger)
            };
            launches.push(Launch {
                source: rendered.source,
                grid: rendered.grid as usize,
                threads: THREADS,
                shared_bytes: rendered.shared_bytes as usize,
                arguments: rendered.parameters.iter().flat_map(places).collect(),
            });
            start = end;
        }
        out.extend(launches.into_iter().map(|l| self.code.launch(l)));
        Ok(())
    }

    /// Bytes, up to those of an allocation, of which an address is a multiple.
    fn aligned(&self, a: Address) -> usize {
        let start = match a.space {
            Space::Body(n) => self.body[n],
            _ => ALIGNED,
        };
        multiple(&[start, a.offset])
    }

    fn product(
        &mut self,
        m: &MatmulKernel,
        context: &Context<'_>,
        out: &mut Vec<Step>,
    ) -> Result<(), CudaError> {
        let mut product = library::matmul::product(m, context)?;
        product.tf32 = self.tf32 && product.dtype == DType::F32;
        let [batch, rows, columns, k] = product.sizes;
        let elements = batch * rows * columns;
        let mut epilogue = m.epilogue.as_deref();
        if library::gemv::takes(&product) {
            let group = Group {
                products: std::slice::from_ref(&product),
                outs: vec![m.out],
                before: None,
                epilogue: epilogue.take_if(|e| library::gemv::takes_epilogue(m, e)),
                fixed: is_fixed(context.schedule, product.rhs.0),
            };
            self.launches(library::gemv::compile(&group, context)?.into(), out);
        } else if library::simt::takes(&product) {
            let fused = epilogue.take_if(|e| library::simt::takes_epilogue(m, e));
            self.launches(library::simt::compile(&product, m.out, fused, context)?, out);
        } else if self.target.warpgroups && library::warpgroup::takes(&product) {
            let fused = epilogue.take_if(|e| library::warpgroup::takes_epilogue(m, e));
            let (launches, scratch) = library::warpgroup::compile(&product, m.out, fused, context)?;
            self.code.scratch_bytes = self.code.scratch_bytes.max(scratch);
            out.extend(launches.into_iter().map(|(launch, maps)| self.code.launch_mapped(launch, maps)));
        } else if elements * k > 0 && (self.vendor)(&product) {
            out.push(Step::Product(product));
        } else if elements > 0 {
            self.launches(library::matmul::own(&product), out);
        }
        self.loops(epilogue.map_or(&[], std::slice::from_ref), context, out)
    }

    fn scan(
        &mut self,
        scan: &ScanKernel,
        context: &Context<'_>,
        out: &mut Vec<Step>,
    ) -> Result<(), CudaError> {
        for view in scan.operands() {
            context.check_view(view, "an operand of a scan")?;
        }
        if let Some(why) = scan.fault(context.schedule) {
            return Err(CudaError::Operand { what: "a scan", why });
        }
        let (body, plan) = (&scan.body, &scan.plan);
        // Buffers of the body that share a place are one.
        let place = |i: usize| plan.places.iter().position(|p| *p == plan.places[i]).unwrap_or(i);
        let own = |i: usize| match plan.places[i] {
            Place::Constant => i,
            _ => place(i),
        };
        let size = |b: BufferId| context.schedule.buffer(b).dtype.size();
        let at = |v: &View, slice: usize| {
            context.homes[v.buffer.index()].plus((v.offset + slice) * size(v.buffer))
        };
        let carries = scan.carries.len();
        let arena =
            scan.arena.map_or(Address { space: Space::Scratch, offset: 0 }, |b| context.homes[b.index()]);
        let aligned = plan.places.iter().map(|place| match *place {
            Place::Input(n) => match scan.sequences.get(n) {
                Some(v) => multiple(&[self.aligned(at(v, 0)), v.strides[0] * size(v.buffer)]),
                None => self.aligned(at(&scan.constants[n - scan.sequences.len()], 0)),
            },
            Place::State(n) if n < carries => self.aligned(context.homes[scan.results[n].index()]),
            Place::State(n) => {
                let bytes = body.buffer(body.states[n].buffer).bytes();
                multiple(&[self.aligned(context.homes[scan.results[n].index()]), bytes])
            }
            Place::Arena(offset) => self.aligned(arena.plus(offset)),
            Place::Constant => ALIGNED,
        });
        let aligned: Vec<usize> = aligned.collect();
        let symbols: Vec<Address> =
            (0..body.buffers.len()).map(|i| Address { space: Space::Body(own(i)), offset: 0 }).collect();
        let mut steps = vec![];
        let around = std::mem::replace(&mut self.body, aligned);
        let lowered = body.kernels.iter().try_for_each(|k| self.kernel(k, body, &symbols, &mut steps));
        self.body = around;
        lowered?;
        let state_symbol = |n: usize| symbols[body.states[n].buffer.index()];
        steps.extend(commits(body, plan, &symbols, &state_symbol));

        for (view, result) in scan.carries.iter().zip(&scan.results) {
            let (from, to) = (at(view, 0), context.homes[result.index()]);
            let bytes = context.schedule.buffer(*result).bytes();
            if from != to && bytes > 0 {
                out.push(Step::Copy { from, to, bytes });
            }
        }
        let constants = homes(body, plan, &mut self.code, &|_| arena, &|_| arena, arena)?;
        for iteration in scan.order() {
            if out.len() + steps.len() > crate::code::MOST_STEPS {
                return Err(CudaError::TooManySteps { most: crate::code::MOST_STEPS });
            }
            let input = |n: usize| match scan.sequences.get(n) {
                Some(v) => at(v, iteration * v.strides[0]),
                None => at(&scan.constants[n - scan.sequences.len()], 0),
            };
            let state = |n: usize| {
                let bytes = body.buffer(body.states[n].buffer).bytes();
                let step = if n < carries { 0 } else { bytes };
                context.homes[scan.results[n].index()].plus(iteration * step)
            };
            let real: Vec<Address> = plan
                .places
                .iter()
                .zip(&constants)
                .map(|(place, constant)| match *place {
                    Place::Input(n) => input(n),
                    Place::State(n) => state(n),
                    Place::Arena(offset) => arena.plus(offset),
                    Place::Constant => *constant,
                })
                .collect();
            out.extend(steps.iter().map(|s| placed(s, &real)));
        }
        Ok(())
    }
}

/// The greatest power of two, up to the alignment of an allocation, that divides all.
fn multiple(bytes: &[usize]) -> usize {
    1 << bytes.iter().fold(ALIGNED, |all, b| all | b).trailing_zeros()
}

/// Whether nothing that a run does changes what is at an address.
fn is_fixed(schedule: &Schedule, at: Address) -> bool {
    match at.space {
        Space::Constants => true,
        Space::State(n) => schedule.states.get(n).is_some_and(|s| s.update.is_none()),
        _ => false,
    }
}

/// A step of a scan's body in an iteration, where its buffers are at `real`.
fn placed(step: &Step, real: &[Address]) -> Step {
    let of = |a: &Address| match a.space {
        Space::Body(n) => real[n].plus(a.offset),
        _ => *a,
    };
    match step {
        Step::Launch { kernel, grid, arguments } => {
            Step::Launch { kernel: *kernel, grid: *grid, arguments: arguments.iter().map(of).collect() }
        }
        Step::Copy { from, to, bytes } => Step::Copy { from: of(from), to: of(to), bytes: *bytes },
        Step::Product(p) => Step::Product(Product {
            lhs: (of(&p.lhs.0), p.lhs.1),
            rhs: (of(&p.rhs.0), p.rhs.1),
            out: of(&p.out),
            ..p.clone()
        }),
    }
}

/// A kernel in reports.
fn label(kernel: &Kernel) -> String {
    match kernel {
        Kernel::Loops(parts) => match &parts[..] {
            [one] => {
                let (p, r) = one.extents.split_at(one.parallel);
                let reduced = if r.is_empty() { String::new() } else { format!(" reduce {r:?}") };
                format!("loop {p:?}{reduced}, {} expressions", one.body.len())
            }
            many => format!("{} loops", many.len()),
        },
        Kernel::Matmul(m) => {
            let (batch, rows, columns, k) = m.sizes();
            format!("matmul {batch}x{rows}x{columns}x{k}")
        }
        Kernel::Library(l) => {
            let shapes: Vec<String> = l.operands.iter().map(|v| format!("{:?}", v.shape)).collect();
            format!("{} {}", l.op.rule().name(), shapes.join(" "))
        }
        Kernel::Scan(s) => format!("scan of {} iterations, {} kernels", s.length, s.body.kernels.len()),
    }
}
