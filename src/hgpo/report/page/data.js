/* The report's data by name. A step is its number in the columns; tasks and trajectories are numbers too. */

const WON = 1;
const UNKNOWN = 2;

class Data {
  constructor({ header, stored }) {
    Object.assign(this, header);
    const read = (columns) => Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, readColumn(column, stored)]));
    this.steps = read(header.steps);
    this.trajectories = read(header.trajectories);
    this.tasks = read(header.tasks);
    this.nodes = read(header.nodes);
    this.texts = read(header.texts);
    this.estimators = header.estimators
      .map((estimator) => ({ ...estimator, ...header.advantages.find((stored) => stored.key === estimator.key) }))
      .filter((estimator) => estimator.advantage)
      .map((estimator) => ({
        ...estimator,
        advantage: readColumn(estimator.advantage, stored),
        levels: estimator.levels.map(({ k, name, ownTrajectory, ...columns }) => ({ k, name, ownTrajectory, ...read(columns) })),
      }));
    this.consistency = header.consistency.map(({ k, ...columns }) => ({ k, ...read(columns) }));
    this.count = { ...header.count, nodes: this.nodes.text.length };
    this.size = this.steps.step.length;
    this.taskStart = this.#starts(this.steps.task, this.tasks.id.length);
    this.taskOfTrajectory = new Int32Array(this.trajectories.id.length);
    this.trajectoryStart = new Int32Array(this.trajectories.id.length);
    this.trajectoryLength = new Int32Array(this.trajectories.id.length);
    for (let step = this.size - 1; step >= 0; step--) {
      const trajectory = this.steps.trajectory[step];
      this.taskOfTrajectory[trajectory] = this.steps.task[step];
      this.trajectoryStart[trajectory] = step;
      this.trajectoryLength[trajectory] += 1;
    }
    this.members = new Map();
  }

  #starts(column, count) {
    const start = new Int32Array(count + 1);
    for (const value of column) start[value + 1] += 1;
    for (let index = 0; index < count; index++) start[index + 1] += start[index];
    return start;
  }

  /* Text n of the store, null for "no text". */
  text(number) {
    if (number === 0) return null;
    const lines = [];
    for (let at = this.texts.start[number]; at < this.texts.start[number + 1]; at++) lines.push(this.lines[this.texts.line[at]]);
    return lines.join("\n");
  }

  stepText(name, step) {
    return this.text(this.steps[name][step]);
  }

  taskId(task) {
    return this.text(this.tasks.id[task]);
  }

  trajectoryId(trajectory) {
    return this.text(this.trajectories.id[trajectory]);
  }

  won(trajectory) {
    return this.trajectories.success[trajectory] === WON;
  }

  /* How many of the trajectories won; "" if it is unknown for one of them. */
  wonCount(trajectories) {
    if (trajectories.some((trajectory) => this.trajectories.success[trajectory] === UNKNOWN)) return "";
    return String(trajectories.filter((trajectory) => this.won(trajectory)).length);
  }

  sumOfRewards(trajectory) {
    return this.stepsOfTrajectory(trajectory).reduce((sum, step) => sum + this.steps.reward[step], 0);
  }

  /* "Update 3", or "" where the steps belong to no update. */
  unitOf(task) {
    return this.unit ? `${this.unit[0].toUpperCase()}${this.unit.slice(1)} ${this.tasks.update[task]}` : "";
  }

  stepsOfTrajectory(trajectory) {
    return range(this.trajectoryStart[trajectory], this.trajectoryStart[trajectory] + this.trajectoryLength[trajectory]);
  }

  trajectoriesOfTask(task) {
    const found = [];
    for (let step = this.taskStart[task]; step < this.taskStart[task + 1]; step += this.trajectoryLength[this.steps.trajectory[step]]) {
      found.push(this.steps.trajectory[step]);
    }
    return found;
  }

  update(step) {
    return this.tasks.update[this.steps.task[step]];
  }

  estimator(key) {
    return this.estimators.find((estimator) => estimator.key === key) || this.estimators[0];
  }

  /* The steps that a level compares a step with, the step itself included; none where it has no group. */
  group(level, step) {
    if (level.group[step] < 0) return [];
    if (!this.members.has(level)) {
      const members = new Map();
      level.group.forEach((group, member) => {
        if (!members.has(group)) members.set(group, []);
        members.get(group).push(member);
      });
      this.members.set(level, members);
    }
    const members = this.members.get(level);
    const own = (member) => !level.ownTrajectory && this.steps.trajectory[member] === this.steps.trajectory[step];
    const similar = [...this.similarities(level, step).keys()].flatMap((group) => members.get(group).filter((member) => !own(member)));
    return [...members.get(level.group[step]), ...similar];
  }

  /* Group -> its similarity, of the groups that a step is compared with beside its own. */
  similarities(level, step) {
    const found = new Map();
    level.source?.forEach((source, at) => {
      if (source === level.group[step]) found.set(level.target[at], level.similarity[at]);
    });
    return found;
  }

  stepLink(step) {
    const id = encodeURIComponent(this.trajectoryId(this.steps.trajectory[step]));
    return `#step=${this.update(step)}/${id}/${this.steps.step[step]}`;
  }

  taskLink(task) {
    return `#task=${this.tasks.update[task]}/${encodeURIComponent(this.taskId(task))}`;
  }

  /* The task to show first: the latest of those that balance wins and losses best or, if no task has both, the one
     whose trajectories' returns differ most. */
  instructiveTask() {
    let [best, least] = [0, [-1, -1]];
    for (let task = 0; task < this.tasks.id.length; task++) {
      const trajectories = this.trajectoriesOfTask(task);
      const won = trajectories.filter((trajectory) => this.won(trajectory)).length;
      const returns = trajectories.map((trajectory) => this.steps.return[this.trajectoryStart[trajectory]]);
      const found = [Math.min(won, trajectories.length - won), won ? 0 : Math.max(...returns) - Math.min(...returns)];
      if (found[0] > least[0] || (found[0] === least[0] && found[1] >= least[1])) [best, least] = [task, found];
    }
    return best;
  }

  /* The step of the task with the largest absolute advantage. */
  instructiveStep(task) {
    const advantage = this.estimators[0]?.advantage ?? [];
    const steps = range(this.taskStart[task], this.taskStart[task + 1]);
    return steps.reduce((best, step) => (Math.abs(advantage[step]) > Math.abs(advantage[best]) ? step : best), steps[0]);
  }

  /* The step of a link, -1 where the report does not show it. */
  findStep(update, id, time) {
    for (let trajectory = 0; trajectory < this.trajectoryStart.length; trajectory++) {
      const first = this.trajectoryStart[trajectory];
      if (this.update(first) === update && this.trajectoryId(trajectory) === id && time in this.stepsOfTrajectory(trajectory)) return first + time;
    }
    return -1;
  }

  findTask(update, id) {
    return this.tasks.update.findIndex((number, task) => number === update && this.taskId(task) === id);
  }
}

function range(from, to) {
  return Array.from({ length: to - from }, (_, index) => from + index);
}
