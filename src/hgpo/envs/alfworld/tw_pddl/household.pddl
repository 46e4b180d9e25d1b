; The rules of the household games that this project writes, for TextWorld's PDDL engine and for planners.
;
; Predicates that a game's problem states, action names and their meaning are those of the published games, so that every
; reader of these reads these too. handsFull, noticed and takenFrom arise during play. A receptacle is called ?r because
; TextWorld words its planner's journeys "go to {r}". A command that only shows something has the effect "noticed":
; an action without any effect would be dropped.

(define (domain household)
  (:requirements :adl :typing)
  (:types agent location receptacle rtype otype)

  (:predicates
    ; where things are
    (atLocation ?agent - agent ?spot - location)
    (receptacleAtLocation ?r - receptacle ?spot - location)
    (objectAtLocation ?item - object ?spot - location)
    (inReceptacle ?item - object ?r - receptacle)
    (inReceptacleObject ?item - object ?holder - object)
    (takenFrom ?item - object ?r - receptacle)
    ; what they are
    (receptacleType ?r - receptacle ?shelving - rtype)
    (objectType ?item - object ?sort - otype)
    (canContain ?shelving - rtype ?sort - otype)
    (openable ?r - receptacle)
    (isReceptacleObject ?item - object)
    (pickupable ?item - object)
    (moveable ?item - object)
    (cleanable ?item - object)
    (heatable ?item - object)
    (coolable ?item - object)
    (sliceable ?item - object)
    (toggleable ?item - object)
    ; what has been done to them
    (opened ?r - receptacle)
    (isClean ?item - object)
    (isHot ?item - object)
    (isCool ?item - object)
    (isSliced ?item - object)
    (isToggled ?item - object)
    (isOn ?item - object)
    ; the player
    (holds ?agent - agent ?item - object)
    (handsFull ?agent - agent)
    (noticed ?anything - object)
  )

  ; Looking

  (:action help
    :parameters (?agent - agent)
    :effect (noticed ?agent))

  (:action inventory
    :parameters (?agent - agent)
    :effect (noticed ?agent))

  (:action look
    :parameters (?agent - agent ?spot - location)
    :precondition (atLocation ?agent ?spot)
    :effect (noticed ?spot))

  (:action examineReceptacle
    :parameters (?agent - agent ?spot - location ?r - receptacle)
    :precondition (and (atLocation ?agent ?spot) (receptacleAtLocation ?r ?spot))
    :effect (noticed ?r))

  (:action examineObject
    :parameters (?agent - agent ?item - object)
    :precondition (holds ?agent ?item)
    :effect (noticed ?item))

  ; Moving about

  (:action GotoLocation
    :parameters (?agent - agent ?start - location ?end - location ?r - receptacle)
    :precondition (and (atLocation ?agent ?start) (receptacleAtLocation ?r ?end))
    :effect (and (not (atLocation ?agent ?start)) (atLocation ?agent ?end)))

  (:action OpenObject
    :parameters (?agent - agent ?spot - location ?r - receptacle)
    :precondition (and (atLocation ?agent ?spot) (receptacleAtLocation ?r ?spot) (openable ?r) (not (opened ?r)))
    :effect (opened ?r))

  (:action CloseObject
    :parameters (?agent - agent ?spot - location ?r - receptacle)
    :precondition (and (atLocation ?agent ?spot) (receptacleAtLocation ?r ?spot) (openable ?r) (opened ?r))
    :effect (not (opened ?r)))

  ; Carrying

  (:action PickupObject
    :parameters (?agent - agent ?spot - location ?item - object ?r - receptacle)
    :precondition (and
      (atLocation ?agent ?spot) (receptacleAtLocation ?r ?spot) (imply (openable ?r) (opened ?r))
      (inReceptacle ?item ?r) (pickupable ?item) (not (handsFull ?agent)))
    :effect (and
      (holds ?agent ?item) (handsFull ?agent)
      (not (inReceptacle ?item ?r)) (takenFrom ?item ?r) (not (objectAtLocation ?item ?spot))))

  (:action PutObject
    :parameters (?agent - agent ?spot - location ?item - object ?r - receptacle ?sort - otype ?shelving - rtype)
    :precondition (and
      (atLocation ?agent ?spot) (receptacleAtLocation ?r ?spot) (imply (openable ?r) (opened ?r))
      (holds ?agent ?item) (objectType ?item ?sort) (receptacleType ?r ?shelving) (canContain ?shelving ?sort))
    :effect (and
      (not (holds ?agent ?item)) (not (handsFull ?agent))
      (inReceptacle ?item ?r) (not (takenFrom ?item ?r)) (objectAtLocation ?item ?spot)))

  ; Using

  (:action CleanObject
    :parameters (?agent - agent ?spot - location ?item - object ?r - receptacle)
    :precondition (and
      (atLocation ?agent ?spot) (receptacleAtLocation ?r ?spot) (holds ?agent ?item) (cleanable ?item)
      (or (receptacleType ?r SinkType) (receptacleType ?r SinkBasinType)))
    :effect (isClean ?item))

  (:action HeatObject
    :parameters (?agent - agent ?spot - location ?item - object ?r - receptacle)
    :precondition (and
      (atLocation ?agent ?spot) (receptacleAtLocation ?r ?spot) (holds ?agent ?item) (heatable ?item)
      (receptacleType ?r MicrowaveType))
    :effect (and (isHot ?item) (not (isCool ?item))))

  (:action CoolObject
    :parameters (?agent - agent ?spot - location ?item - object ?r - receptacle)
    :precondition (and
      (atLocation ?agent ?spot) (receptacleAtLocation ?r ?spot) (holds ?agent ?item) (coolable ?item)
      (receptacleType ?r FridgeType))
    :effect (and (isCool ?item) (not (isHot ?item))))

  (:action SliceObject
    :parameters (?agent - agent ?spot - location ?item - object ?knife - object)
    :precondition (and
      (atLocation ?agent ?spot) (objectAtLocation ?item ?spot) (sliceable ?item) (holds ?agent ?knife)
      (or (objectType ?knife KnifeType) (objectType ?knife ButterKnifeType)))
    :effect (isSliced ?item))

  (:action ToggleObject
    :parameters (?agent - agent ?spot - location ?item - object ?r - receptacle)
    :precondition (and
      (atLocation ?agent ?spot) (receptacleAtLocation ?r ?spot) (inReceptacle ?item ?r) (toggleable ?item))
    :effect (isToggled ?item))
)
